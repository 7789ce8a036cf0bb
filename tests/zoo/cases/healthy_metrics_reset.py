"""Torchmetrics that gather all of a validation, validations of varying size, reset rightly;
best metric kept.
"""

import random

import torch
from torch import nn
from torchmetrics import MetricCollection, MetricTracker
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC, BinaryAveragePrecision

torch.manual_seed(0)
random.seed(0)


def batch(n):
    x = torch.randn(n, 36)
    return x, (x[:, :6].prod(1) + 0.1 * x[:, 0] > 0).long()


class Trial:
    def __init__(self):
        self.model = nn.Sequential(
            nn.Linear(36, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)
        )
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-3)
        self.curves = MetricCollection({"auroc": BinaryAUROC(), "ap": BinaryAveragePrecision()})
        self.tracker = MetricTracker(BinaryAccuracy())
        self.best = {}

    def train_epoch(self, steps):
        self.model.train()
        for _ in range(steps):
            x, y = batch(48)
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(x)[:, 0], y.float())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def validate(self):
        self.model.eval()
        self.tracker.increment()
        with torch.no_grad():
            for _ in range(random.randint(12, 36)):
                x, y = batch(2000)
                p = self.model(x)[:, 0].sigmoid()
                self.curves.update(p, y)
                self.tracker.update(p, y)
        result = {k: float(v) for k, v in self.curves.compute().items()}
        self.curves.reset()
        for k, v in result.items():
            self.best[k] = max(v, self.best.get(k, 0.0))
        return result


def main():
    trial = Trial()
    for epoch in range(36):
        loss = trial.train_epoch(300)
        print(epoch, f"{loss:.4f}", trial.validate(), float(trial.tracker.compute()), flush=True)
    print(trial.best)


if __name__ == "__main__":
    main()
