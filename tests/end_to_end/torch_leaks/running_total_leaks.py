"""A running validation loss that adds up tensors, computed with gradients on."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class Meter:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def mean(self):
        return self.total / max(self.count, 1)


def train(model, loader, optimizer):
    model.train()
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluate(model, loader, meter):
    model.eval()
    for x, y in loader:
        meter.total += F.cross_entropy(model(x), y)
        meter.count += 1


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))
    data = TensorDataset(torch.rand(640, 256), torch.randint(0, 10, (640,)))
    train_loader = DataLoader(data, batch_size=32, shuffle=True)
    val_loader = DataLoader(TensorDataset(*data[:320]), batch_size=32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    meter = Meter()
    for epoch in range(EPOCHS):
        train(model, train_loader, optimizer)
        evaluate(model, val_loader, meter)
        print(f"epoch {epoch}: validation loss so far {meter.mean():.3f}")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        done = {"validation": EPOCHS, "batch": EPOCHS * len(val_loader)}
        tell(locals(), "meter.total", "model, data", done)


if __name__ == "__main__":
    main()
