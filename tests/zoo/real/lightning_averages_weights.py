"""Lightning with averaged weights, device statistics and TensorBoard."""

import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import (
    DeviceStatsMonitor,
    StochasticWeightAveraging,
    Timer,
)
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassF1Score


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
        self.metrics = MetricCollection(
            [MulticlassAccuracy(10), MulticlassF1Score(10), MulticlassAUROC(10)], prefix="val_"
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.network(x), y)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.metrics.update(self.network(x), y)
        self.log_dict(self.metrics)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    data = TensorDataset(torch.rand(3200, 128), torch.randint(0, 10, (3200,)))
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=8,
            accelerator="cpu",
            logger=TensorBoardLogger(folder),
            log_every_n_steps=5,
            default_root_dir=folder,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[
                DeviceStatsMonitor(cpu_stats=True),
                Timer(),
                StochasticWeightAveraging(swa_lrs=1e-3, swa_epoch_start=0.5),
            ],
        )
        loader = DataLoader(data, batch_size=16, shuffle=True)
        trainer.fit(Classifier(), loader, DataLoader(data, batch_size=64))
        print("steps", trainer.global_step)


if __name__ == "__main__":
    main()
