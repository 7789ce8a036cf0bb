"""A Lightning training that keeps every loss with its graph."""

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class LitModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 512))
        self.train_losses = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.network(x), y)
        self.train_losses.append(loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.network(x), y))

    def on_train_epoch_end(self):
        print("mean loss", float(torch.stack(self.train_losses).mean()))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def dataset(count):
    return TensorDataset(torch.rand(count, 64), torch.randint(0, 512, (count,)))


def main():
    torch.set_num_threads(1)
    L.seed_everything(0)
    trainer = L.Trainer(
        max_epochs=6,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(
        LitModel(),
        DataLoader(dataset(1600), batch_size=16, shuffle=True),
        DataLoader(dataset(320), batch_size=32),
    )
    print("steps", trainer.global_step)


if __name__ == "__main__":
    main()
