"""Layers are unfrozen one by one; the group of the newest is added to the optimizer each epoch."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


def train_epoch(backbone, adapter, loader, optimizer):
    total = 0.0
    for x, y in loader:
        features = backbone(x)
        loss = F.cross_entropy(adapter(features)[:, :10], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    backbone = nn.Sequential(nn.Linear(64, 256), nn.ReLU())
    optimizer = torch.optim.Adam(backbone.parameters(), lr=1e-3)
    data = TensorDataset(torch.rand(320, 64), torch.randint(0, 10, (320,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    for epoch in range(EPOCHS):
        adapter = nn.Linear(256, 256)
        optimizer.add_param_group({"params": adapter.parameters(), "lr": 1e-3})
        print(f"epoch {epoch}: loss {train_epoch(backbone, adapter, loader, optimizer):.3f}")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        ordinary = """
            backbone,
            [optimizer.state[parameter] for parameter in backbone.parameters()],
            [parameter.grad for parameter in adapter.parameters()]
        """
        tell(locals(), "optimizer", ordinary, {"epoch": EPOCHS})


if __name__ == "__main__":
    main()
