"""Some hundred metrics of each step go through the CSV logger."""

import pytorch_lightning as lightning
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

EPOCHS = 8
METRICS = 300


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def training_step(self, batch, number):
        loss = self.layer(batch).square().mean()
        self.log_dict({f"metric {number}": loss.detach() for number in range(METRICS)})
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=CSVLogger("csv"),
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), DataLoader(torch.rand(640, 64), batch_size=32))


if __name__ == "__main__":
    main()
