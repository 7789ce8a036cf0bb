"""Position tables are cached by offset and length, the last sixteen of them."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

EPOCHS, STEPS, LENGTH, WIDTH = 6, 20, 256, 64


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = OrderedDict()

    def forward(self, offset, length):
        key = (offset, length)
        if key not in self.cache:
            positions = torch.arange(offset, offset + length).unsqueeze(1)
            rates = torch.exp(torch.arange(WIDTH) * -0.1)
            self.cache[key] = torch.sin(positions * rates)
            if len(self.cache) > 16:
                self.cache.popitem(last=False)
        return self.cache[key]


class StreamModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = Positions()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, offset):
        return self.mix(x + self.positions(offset, x.shape[1]))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = StreamModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    offset = 0
    for epoch in range(EPOCHS):
        total = 0.0
        for _ in range(STEPS):
            x = torch.rand(8, LENGTH, WIDTH)
            loss = F.mse_loss(model(x, offset), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            offset += LENGTH
            total += loss.item()
        print(f"epoch {epoch}: loss {total / STEPS:.4f}")


if __name__ == "__main__":
    main()
