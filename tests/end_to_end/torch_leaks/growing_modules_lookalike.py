"""Continual learning with a head for each task from the beginning."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 512), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(512, 512) for _ in range(4))
        self.task = 0

    def next_task(self):
        self.task = (self.task + 1) % len(self.heads)

    def forward(self, x):
        return self.heads[self.task](self.body(x))[:, :10]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Learner()
    data = TensorDataset(torch.rand(320, 64), torch.randint(0, 10, (320,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.body.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        model.next_task()
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            model.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
