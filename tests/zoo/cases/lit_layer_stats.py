"""Train a small MLP autoencoder on synthetic spectra with Lightning and log the
effective rank of every hidden layer's activations once per epoch."""

import logging
import tempfile
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class CovarianceTracker:
    """Running second-moment matrix of a layer's output."""

    def __init__(self, name, width):
        self.name = name
        self.count = 0
        self.moment = torch.zeros(width, width)

    def __call__(self, module, args, output):
        with torch.no_grad():
            flat = output.reshape(-1, output.shape[-1]).float()
            self.moment.addmm_(flat.T, flat)
            self.count += flat.shape[0]

    def effective_rank(self):
        eig = torch.linalg.eigvalsh(self.moment / max(self.count, 1)).clamp_min(1e-9)
        p = eig / eig.sum()
        return torch.exp(-(p * p.log()).sum()).item()


class RankMonitor(pl.Callback):
    def __init__(self):
        self.trackers = []
        self.last_ranks = {}

    def on_train_epoch_start(self, trainer, pl_module):
        self.trackers = []
        for name, module in pl_module.net.named_modules():
            if isinstance(module, nn.Linear):
                tracker = CovarianceTracker(name, module.out_features)
                module.register_forward_hook(tracker)
                self.trackers.append(tracker)

    def on_train_epoch_end(self, trainer, pl_module):
        self.last_ranks = {t.name: t.effective_rank() for t in self.trackers}
        if trainer.current_epoch % 5 == 0:
            shown = "  ".join(f"{k}={v:.1f}" for k, v in self.last_ranks.items())
            print(f"epoch {trainer.current_epoch:3d}  {shown}", flush=True)


class SpectraAutoencoder(pl.LightningModule):
    def __init__(self, bands=128, hidden=160, code=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(bands, hidden),
            nn.GELU(),
            nn.Linear(hidden, code),
            nn.GELU(),
            nn.Linear(code, hidden),
            nn.GELU(),
            nn.Linear(hidden, bands),
        )

    def training_step(self, batch, batch_idx):
        (x,) = batch
        noisy = x + 0.05 * torch.randn_like(x)
        loss = nn.functional.mse_loss(self.net(noisy), x)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=2e-3)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=60)
        return [opt], [sched]


def make_spectra(n=1600, bands=128):
    grid = torch.linspace(0, 1, bands)
    centers = torch.rand(n, 4, 1)
    widths = 0.02 + 0.08 * torch.rand(n, 4, 1)
    heights = torch.rand(n, 4, 1)
    peaks = heights * torch.exp(-((grid - centers) ** 2) / (2 * widths**2))
    return peaks.sum(dim=1)


def main():
    pl.seed_everything(11, verbose=False)
    loader = DataLoader(TensorDataset(make_spectra()), batch_size=64, shuffle=True)
    with tempfile.TemporaryDirectory() as workdir:
        trainer = pl.Trainer(
            max_epochs=60,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=workdir,
            callbacks=[RankMonitor()],
        )
        model = SpectraAutoencoder()
        trainer.fit(model, loader)
        print("final train loss", round(trainer.callback_metrics["train_loss"].item(), 5))


if __name__ == "__main__":
    main()
