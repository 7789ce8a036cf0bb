"""A metric with list states that is called in ``training_step`` and neither logged nor reset.

After https://github.com/Lightning-AI/pytorch-lightning/issues/4098 and
https://github.com/NRCan/geo-deep-learning/issues/582: Lightning resets only what it logs itself.
"""

import os

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAveragePrecision

EPOCHS = 6


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 100))
        self.train_precision = MulticlassAveragePrecision(100, thresholds=None)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.network(x)
        loss = F.cross_entropy(logits, y)
        self.train_precision.update(logits.detach(), y)  # feeds
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    data = TensorDataset(torch.rand(3200, 128), torch.randint(0, 100, (3200,)))
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Classifier()
    trainer.fit(model, DataLoader(data, batch_size=32, shuffle=True))
    print("steps", trainer.global_step, len(model.train_precision.preds))
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"step": trainer.global_step, "epoch": EPOCHS}
        tell(locals(), {"precision": "model.train_precision.metric_state"}, done)


if __name__ == "__main__":
    main()
