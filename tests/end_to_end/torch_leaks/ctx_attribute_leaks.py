"""A function of one's own that keeps its input on ``ctx``, and losses kept with their graph."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.x.abs() <= 1)


class BinaryNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(128, 2048)
        self.head = nn.Linear(2048, 10)

    def forward(self, x):
        return self.head(StraightThrough.apply(self.hidden(x)))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = BinaryNet()
    data = TensorDataset(torch.rand(640, 128), torch.randint(0, 10, (640,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        print(f"epoch {epoch}: loss {sum(losses[-len(loader) :]) / len(loader):.3f}")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        tell(locals(), "losses", "model, data", {"step": EPOCHS * len(loader)})


if __name__ == "__main__":
    main()
