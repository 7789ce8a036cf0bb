"""Continual learning that adds a head for every epoch."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 512), nn.ReLU())
        self.heads = nn.ModuleList()

    def new_head(self):
        self.heads.append(nn.Linear(512, 512))

    def forward(self, x):
        return self.heads[-1](self.body(x))[:, :10]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Learner()
    data = TensorDataset(torch.rand(320, 64), torch.randint(0, 10, (320,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.body.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        model.new_head()
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            model.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        ordinary = (
            "model.body, data, [parameter.grad for parameter in model.heads[-1].parameters()]"
        )
        tell(locals(), "model.heads", ordinary, {"epoch": EPOCHS})


if __name__ == "__main__":
    main()
