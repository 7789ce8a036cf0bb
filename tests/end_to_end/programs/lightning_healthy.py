"""A Lightning training that gathers outputs in each validation and clears them after it."""

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class LitModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 512))
        self.validation_outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.network(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self.network(x)
        self.validation_outputs.append(logits)
        self.log("val_loss", F.cross_entropy(logits, y), prog_bar=True)

    def on_validation_epoch_end(self):
        logits = torch.cat(self.validation_outputs)
        self.log("sureness", logits.softmax(-1).max(-1).values.mean())
        self.validation_outputs.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def dataset(count):
    return TensorDataset(torch.rand(count, 64), torch.randint(0, 512, (count,)))


def main():
    torch.set_num_threads(1)
    L.seed_everything(0)
    trainer = L.Trainer(
        max_epochs=8,
        accelerator="cpu",
        accumulate_grad_batches=2,
        val_check_interval=0.5,
        logger=False,
        enable_checkpointing=False,
        log_every_n_steps=10,
    )
    trainer.fit(
        LitModel(),
        DataLoader(dataset(960), batch_size=16, shuffle=True),
        DataLoader(dataset(640), batch_size=32),
    )
    print("steps", trainer.global_step)


if __name__ == "__main__":
    main()
