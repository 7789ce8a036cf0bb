"""Trains a denoiser with Lightning; a logger of our own collects what goes to the dashboard."""

import warnings
from argparse import Namespace

import lightning
import torch
from lightning.pytorch.loggers import Logger
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH = 40, 16


class Blobs(Dataset):
    """Pictures of a few soft blobs, and the same with noise."""

    def __init__(self, count, seed):
        self.count, self.seed = count, seed
        self.grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, SIDE)] * 2, indexing="ij"))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        random = torch.Generator().manual_seed(self.seed * 100003 + index)
        places = torch.rand(4, 2, 1, 1, generator=random) * 1.6 - 0.8
        clean = (-30 * (self.grid - places).square().sum(1)).exp().sum(0, keepdim=True)
        return clean + 0.3 * torch.randn(1, SIDE, SIDE, generator=random), clean


class DashboardLogger(Logger):
    """Collects scalars and pictures, and sends them where a token is configured."""

    def __init__(self, token=None, every=25):
        super().__init__()
        self.token, self.every = token, every
        self.pending = []
        self.sent = 0

    @property
    def name(self):
        return "denoise"

    @property
    def version(self):
        return "0"

    def log_hyperparams(self, params, *args, **kwargs):
        self.params = dict(vars(params) if isinstance(params, Namespace) else params)

    def log_metrics(self, metrics, step=None):
        self.pending.append({"step": step, **metrics})

    def log_image(self, key, images, step=None):
        self.pending.append({"step": step, "key": key, "images": images})
        if len(self.pending) >= self.every:
            self.flush()

    def flush(self):
        if self.token is None:
            return
        self.sent += len(self.pending)
        self.pending.clear()

    def save(self):
        self.flush()


class Denoiser(lightning.LightningModule):
    def __init__(self, width=16):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.SiLU(),
            nn.Conv2d(width, 1, 3, padding=1),
        )  # fmt: skip

    def training_step(self, batch, index):
        noisy, clean = batch
        loss = nn.functional.mse_loss(noisy - self.net(noisy), clean)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, index):
        noisy, clean = batch
        restored = noisy - self.net(noisy)
        self.log("val/loss", nn.functional.mse_loss(restored, clean))
        if index < 3:
            strip = torch.cat([noisy, restored, clean], dim=-1).mul(255).clamp(0, 255).byte()
            self.logger.log_image(f"val/{index}", strip, step=self.global_step)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main():
    warnings.simplefilter("ignore")
    lightning.seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    trainer = lightning.Trainer(
        max_epochs=14, accelerator="cpu", logger=DashboardLogger(), log_every_n_steps=5,
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
        num_sanity_val_steps=0,
    )  # fmt: skip
    model = Denoiser()
    trainer.fit(
        model, DataLoader(Blobs(240, 0), BATCH, shuffle=True), DataLoader(Blobs(48, 1), BATCH)
    )
    print(f"val loss {trainer.callback_metrics['val/loss']:.4f}", flush=True)


if __name__ == "__main__":
    main()
