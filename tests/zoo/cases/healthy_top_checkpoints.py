"""Trains a radar classifier with Lightning; the three best weights stay, metrics are reset."""

import copy
import heapq
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAUROC, MulticlassF1Score

CLASSES, LENGTH = 6, 128


def echoes(count, seed):
    """Return echoes of moving things, and what they are of."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (count,), generator=random)
    at = torch.arange(LENGTH) / LENGTH
    turn = 4 + 5 * y[:, None] + torch.rand(count, 1, generator=random) * 3
    beat = torch.sin(6.28 * turn * at + 6.28 * torch.rand(count, 1, generator=random))
    return (beat + 1.2 * torch.randn(count, LENGTH, generator=random))[:, None], y


class BestThree(Callback):
    """Holds the three best weights in memory, to average them at the end."""

    def __init__(self):
        self.best = []
        self.history = []

    def on_validation_end(self, trainer, module):
        score = float(trainer.callback_metrics["val/auroc"])
        self.history.append(score)
        entry = (score, trainer.current_epoch, copy.deepcopy(module.net.state_dict()))
        if len(self.best) < 3:
            heapq.heappush(self.best, entry)
        elif score > self.best[0][0]:
            heapq.heapreplace(self.best, entry)

    def average(self):
        states = [state for _, _, state in self.best]
        return {key: sum(state[key] for state in states) / len(states) for key in states[0]}


class Radar(lightning.LightningModule):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, width, 9, 2, 4), nn.ReLU(), nn.Conv1d(width, width, 9, 2, 4), nn.ReLU(),
            nn.Conv1d(width, width, 9, 2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(width * 16, 512),
            nn.ReLU(), nn.Linear(512, CLASSES),
        )  # fmt: skip
        self.scores = MetricCollection(
            {"auroc": MulticlassAUROC(CLASSES), "f1": MulticlassF1Score(CLASSES)}, prefix="val/"
        )
        self.mean_loss = MeanMetric()

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.mean_loss.update(loss.detach())
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.scores.update(self.net(x).softmax(-1), y)

    def on_validation_epoch_end(self):
        self.log_dict(self.scores.compute())
        self.scores.reset()
        self.mean_loss.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-4)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.93)]


def main():
    warnings.simplefilter("ignore")
    lightning.seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    best, model = BestThree(), Radar()
    trainer = lightning.Trainer(
        max_epochs=14, accelerator="cpu", logger=False, callbacks=[best], num_sanity_val_steps=0,
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(
        model,
        DataLoader(TensorDataset(*echoes(960, 0)), 32, shuffle=True),
        DataLoader(TensorDataset(*echoes(600, 1)), 100),
    )
    model.net.load_state_dict(best.average())
    print(f"auroc {best.history[0]:.3f} to {max(best.history):.3f}", flush=True)


if __name__ == "__main__":
    main()
