"""Trains a forecaster with Lightning on windows that are cut from the series afresh each epoch."""

import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, WINDOWS, PAST, AHEAD, BATCH = 18, 1600, 96, 12, 32


class Series:
    """Loads of some hundred transformers over many days."""

    def __init__(self, seed, count=120, hours=2400):
        random = torch.Generator().manual_seed(seed)
        time = torch.arange(hours, dtype=torch.float32)
        phase = 24 * torch.rand(count, 1, generator=random)
        scale = 0.5 + torch.rand(count, 1, generator=random)
        noise = torch.randn(count, hours, generator=random)
        daily = torch.sin(2 * torch.pi * (time + phase) / 24)
        weekly = 0.4 * torch.sin(2 * torch.pi * (time + phase) / 168)
        self.values = scale * (daily + weekly) + 0.2 * noise


class Windows(Dataset):
    """Windows at random places, normalised each for itself."""

    def __init__(self, series, seed, count=WINDOWS):
        random = torch.Generator().manual_seed(seed)
        rows = torch.randint(len(series.values), (count,), generator=random)
        begins = torch.randint(series.values.shape[1] - PAST - AHEAD, (count,), generator=random)
        columns = begins[:, None] + torch.arange(PAST + AHEAD)
        windows = series.values[rows[:, None], columns]
        self.mean = windows[:, :PAST].mean(1, keepdim=True)
        self.scale = windows[:, :PAST].std(1, keepdim=True) + 1e-3
        self.windows = (windows - self.mean) / self.scale

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        return self.windows[index, :PAST], self.windows[index, PAST:]


class Loads(L.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.series = Series(0)
        self.loaders = []
        self.held = Windows(self.series, seed=10**6, count=400)

    def train_dataloader(self):
        epoch = self.trainer.current_epoch
        random = torch.Generator().manual_seed(epoch)
        loader = DataLoader(Windows(self.series, epoch), BATCH, shuffle=True, generator=random)
        self.loaders.append(loader)
        return loader

    def val_dataloader(self):
        return DataLoader(self.held, 100)

    def state_dict(self):
        return {"order": [loader.generator.get_state() for loader in self.loaders]}


class Forecaster(L.LightningModule):
    def __init__(self, width=64):
        super().__init__()
        self.mix = nn.Sequential(
            nn.Conv1d(1, width, 9, 2, 4), nn.GELU(), nn.Conv1d(width, width, 5, 2, 2), nn.GELU()
        )
        self.out = nn.Linear(width * PAST // 4, AHEAD)

    def forward(self, past):
        return self.out(self.mix(past[:, None]).flatten(1))

    def training_step(self, batch, _index):
        past, ahead = batch
        return nn.functional.huber_loss(self(past), ahead)

    def validation_step(self, batch, _index):
        past, ahead = batch
        self.log("held", nn.functional.l1_loss(self(past), ahead))

    def on_validation_epoch_end(self):
        print(
            f"epoch {self.current_epoch}: {self.trainer.callback_metrics['held']:.3f}", flush=True
        )

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)]


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        reload_dataloaders_every_n_epochs=1,
    )  # fmt: skip
    trainer.fit(Forecaster(), datamodule=Loads())


if __name__ == "__main__":
    main()
