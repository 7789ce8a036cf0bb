"""The norms of the gradients are kept for a picture of how they flow."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class GradientLog:
    def __init__(self, model):
        self.model = model
        self.by_step = {}

    def record(self, step):
        self.by_step[step] = {
            name: parameter.grad.norm().item() for name, parameter in self.model.named_parameters()
        }


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    data = TensorDataset(torch.rand(640, 64), torch.randint(0, 10, (640,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    log, step = GradientLog(model), 0
    for epoch in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            log.record(step)
            optimizer.step()
            step += 1
        print(f"epoch {epoch}: gradients of {len(log.by_step)} steps")


if __name__ == "__main__":
    main()
