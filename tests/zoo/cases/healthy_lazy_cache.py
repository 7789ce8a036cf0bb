"""Lightning; a DataModule's dataset decodes lazily into a cache keyed by sample; random
sampling with replacement, so the cache fills ever more slowly and is complete well before
the end.
"""

import logging

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
N, DIM = 1500, 1024


class Lazy(Dataset):
    def __init__(self):
        self.decoded = {}

    def __len__(self):
        return N

    def __getitem__(self, i):
        if i not in self.decoded:
            g = torch.Generator().manual_seed(i)
            self.decoded[i] = torch.randn(DIM, generator=g)
        return self.decoded[i], i % 5


class Data(L.LightningDataModule):
    def setup(self, stage=None):
        self.train = Lazy()

    def train_dataloader(self):
        sampler = RandomSampler(self.train, replacement=True, num_samples=1600)
        return DataLoader(self.train, batch_size=16, sampler=sampler)

    def val_dataloader(self):
        g = torch.Generator().manual_seed(99)
        x = torch.randn(320, DIM, generator=g)
        return DataLoader(list(zip(x, torch.arange(320) % 5)), batch_size=32)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(DIM, 64), nn.ReLU(), nn.Linear(64, 5))
        self.best = None
        self.curve = []

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("val", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def on_validation_epoch_end(self):
        value = float(self.trainer.callback_metrics["val"])
        self.curve.append(value)
        if self.best is None or value < self.best[0]:
            self.best = (value, {k: v.clone() for k, v in self.net.state_dict().items()})
        print(self.current_epoch, f"{value:.4f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-4)


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = L.Trainer(
        max_epochs=32,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), Data())
