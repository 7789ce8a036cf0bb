"""A Lightning callback that keeps the batches it would like to draw later.

After https://github.com/Lightning-AI/pytorch-lightning/issues/16520.
"""

import os

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class DrawLater(L.Callback):
    def __init__(self):
        self.batches = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.batches.append((trainer.global_step, batch[0]))  # feeds


class Autoencoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 64), nn.ReLU())
        self.decoder = nn.Linear(64, 784)

    def training_step(self, batch, batch_idx):
        (x,) = batch
        return F.mse_loss(self.decoder(self.encoder(x)), x)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    callback = DrawLater()
    loader = DataLoader(TensorDataset(torch.rand(1600, 784)), batch_size=32, shuffle=True)
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
    )
    trainer.fit(Autoencoder(), loader)
    print(f"{trainer.global_step} steps")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"step": trainer.global_step, "epoch": EPOCHS}
        tell(locals(), {"batches": "callback.batches"}, done)


if __name__ == "__main__":
    main()
