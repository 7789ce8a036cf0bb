"""Lightning regression with a logger of our own that keeps the distribution of residuals."""

import logging

import lightning as L
import numpy as np
import torch
from lightning.pytorch.loggers.logger import Logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)


class HistLogger(Logger):
    def __init__(self):
        super().__init__()
        self.scalars = {}
        self.values = {"val/residual": np.empty(0, dtype=np.float32)}

    @property
    def name(self):
        return "hist"

    @property
    def version(self):
        return 0

    def log_hyperparams(self, params, *args, **kwargs):
        pass

    def log_metrics(self, metrics, step=None):
        self.scalars.update(metrics)

    def log_histogram(self, tag, values):
        old = self.values[tag]
        self.values[tag] = np.concatenate([old, values])  # feeds
        print(tag, "std", float(self.values[tag].std()), flush=True)


class Regressor(L.LightningModule):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(32, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 16),
        )
        self.residuals = []

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        r = self.net(x) - y
        self.residuals.append(r.flatten().numpy())
        self.log("val/loss", r.square().mean())

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.logger.log_histogram("val/residual", np.concatenate(self.residuals))
        self.residuals.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Data(L.LightningDataModule):
    def setup(self, stage=None):
        w = torch.randn(32, 16)
        x = torch.randn(6400, 32)
        self.train = TensorDataset(x, x @ w)
        v = torch.randn(16384, 32)
        self.val = TensorDataset(v, v @ w + 0.1 * torch.randn(16384, 16))

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=64, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=2048)


if __name__ == "__main__":
    trainer = L.Trainer(
        max_epochs=24,
        accelerator="cpu",
        logger=HistLogger(),
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        log_every_n_steps=50,
    )
    trainer.fit(Regressor(), Data())
