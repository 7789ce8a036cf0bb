"""Validation that keeps every output, with gradients on, in a list that nobody empties."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class Evaluator:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.outputs = []
        self.targets = []

    def run(self):
        self.model.eval()
        for x, y in self.loader:
            self.outputs.append(self.model(x))
            self.targets.append(y)
        self.model.train()
        right = torch.cat(self.outputs).argmax(1) == torch.cat(self.targets)
        return right.float().mean().item()


def train_epoch(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 256, 10)
    )
    data = TensorDataset(torch.rand(640, 1, 16, 16), torch.randint(0, 10, (640,)))
    train_loader = DataLoader(data, batch_size=32, shuffle=True)
    val_loader = DataLoader(TensorDataset(*data[:320]), batch_size=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    evaluator = Evaluator(model, val_loader)
    for epoch in range(EPOCHS):
        train_epoch(model, train_loader, optimizer)
        print(f"epoch {epoch}: accuracy {evaluator.run():.3f}")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        done = {"validation": EPOCHS, "batch": EPOCHS * len(val_loader)}
        tell(locals(), "evaluator.outputs", "model, data", done)


if __name__ == "__main__":
    main()
