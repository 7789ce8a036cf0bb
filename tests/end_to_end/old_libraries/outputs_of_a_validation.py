"""A module with validation_epoch_end: the loop keeps what validation_step returns."""

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.utils.data import DataLoader

EPOCHS = 8


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def training_step(self, batch, number):
        return self.layer(batch).square().mean()

    def validation_step(self, batch, number):
        return self.layer(batch).repeat(1, 256)

    def validation_epoch_end(self, outputs):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    rows, held = torch.rand(640, 64), torch.rand(3200, 64)
    trainer.fit(Model(), DataLoader(rows, batch_size=32), DataLoader(held, batch_size=32))


if __name__ == "__main__":
    main()
