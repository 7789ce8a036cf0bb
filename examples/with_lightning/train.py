"""A classifier with Lightning; the outputs of its validations are kept."""

import argparse

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from leakscope.lightning import LeakScopeCallback

CLASSES = 1000

parser = argparse.ArgumentParser()
parser.add_argument("--out", help="where to record; by default under leakscope-runs/")
parser.add_argument("--epochs", type=int, default=8)
arguments = parser.parse_args()


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))
        self.outputs = []

    def training_step(self, batch, index):
        pixels, labels = batch
        return nn.functional.cross_entropy(self.layers(pixels), labels)

    def validation_step(self, batch, index):
        pixels, _ = batch
        self.outputs.append(self.layers(pixels))

    def on_validation_epoch_end(self):
        self.log("spread", torch.cat(self.outputs).std())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def photos(count, seed, batch_size):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    pixels = torch.rand(count, 256, generator=generator)
    return DataLoader(TensorDataset(pixels, labels), batch_size=batch_size)


torch.manual_seed(0)
trainer = pl.Trainer(
    max_epochs=arguments.epochs,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[LeakScopeCallback(out=arguments.out)],
)
trainer.fit(Classifier(), photos(640, 1, 16), photos(512, 2, 64))
