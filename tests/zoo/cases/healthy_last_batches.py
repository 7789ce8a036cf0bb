"""Trains a multi-task net with Lightning; a callback holds the last batches, to save them on errors."""

import logging
import warnings
from collections import deque

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, SAMPLES, BATCH, SIZE, HELD = 9, 384, 16, 48, 90


class Fields(Dataset):
    """Pictures of fields: how much is sown, and what."""

    def __init__(self, seed, count):
        random_ = torch.Generator().manual_seed(seed)
        self.kinds = torch.randint(5, (count,), generator=random_)
        self.shares = torch.rand(count, generator=random_)
        self.seeds = torch.randint(2**31, (count,), generator=random_)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        random_ = torch.Generator().manual_seed(int(self.seeds[index]))
        field = 0.5 * torch.randn(3, SIZE, SIZE, generator=random_)
        sown = torch.rand(SIZE, SIZE, generator=random_) < self.shares[index]
        field[int(self.kinds[index]) % 3, sown] += 0.5 + 0.4 * int(self.kinds[index] > 2)
        return field, self.kinds[index], self.shares[index]


class LastBatches(L.Callback):
    """Holds what went into the last steps, and saves it when something fails."""

    def __init__(self, held):
        self.batches = deque(maxlen=held)

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.batches.append((trainer.global_step, batch, outputs["loss"].detach()))

    def on_exception(self, trainer, module, exception):
        torch.save(list(self.batches), "last_batches.pt")


class TwoTasks(L.LightningModule):
    """Losses of both tasks are weighted by how uncertain each is."""

    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.kind, self.share = nn.Linear(8 * width, 5), nn.Linear(8 * width, 1)
        self.spread = nn.Parameter(torch.zeros(2))

    def losses(self, batch):
        fields, kinds, shares = batch
        hidden = self.body(fields)
        kind = nn.functional.cross_entropy(self.kind(hidden), kinds)
        share = nn.functional.mse_loss(self.share(hidden).squeeze(1), shares)
        return torch.stack([kind, share])

    def training_step(self, batch, _index):
        losses = self.losses(batch)
        return (losses * (-self.spread).exp() + self.spread).sum()

    def validation_step(self, batch, _index):
        kind, share = self.losses(batch)
        self.log_dict({"kind": kind, "share": share})

    def on_validation_epoch_end(self):
        found = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch}: {found['kind']:.3f}, {found['share']:.4f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    L.seed_everything(0, verbose=False)
    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        callbacks=[LastBatches(HELD)],
    )  # fmt: skip
    trainer.fit(
        TwoTasks(),
        DataLoader(Fields(0, SAMPLES), BATCH, shuffle=True),
        DataLoader(Fields(1, 64), 32),
    )


if __name__ == "__main__":
    main()
