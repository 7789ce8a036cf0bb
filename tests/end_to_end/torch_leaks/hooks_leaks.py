"""A hook that watches activations, registered again in every epoch."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


def watch_covariance(width):
    moments = torch.zeros(width, width)

    def hook(module, inputs, output):
        seen = output.detach()
        moments.add_(seen.T @ seen)

    return hook


def train_epoch(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    data = TensorDataset(torch.rand(480, 64), torch.randint(0, 10, (480,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        model[1].register_forward_hook(watch_covariance(512))
        print(f"epoch {epoch}: loss {train_epoch(model, loader, optimizer):.3f}")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        tell(locals(), "dict(model[1]._forward_hooks)", "model, data", {"epoch": EPOCHS})


if __name__ == "__main__":
    main()
