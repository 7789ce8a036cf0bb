"""The worst samples are pushed onto a heap, which somebody forgot to cut to its ten worst."""

import heapq
import itertools
import os
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


@dataclass(order=True)
class Ranked:
    loss: float
    number: int
    sample: torch.Tensor = field(compare=False)


class WorstSamples:
    def __init__(self, keep=10):
        self.keep = keep
        self.heap = []
        self.numbers = itertools.count()

    def offer(self, losses, x):
        for loss, sample in zip(losses.tolist(), x, strict=True):
            heapq.heappush(self.heap, Ranked(loss, next(self.numbers), sample.clone()))  # feeds

    def worst(self):
        return heapq.nlargest(self.keep, self.heap)


class Engine:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.hooks = {"worst": WorstSamples()}

    def run(self, loader):
        for x, y in loader:
            losses = F.cross_entropy(self.model(x), y, reduction="none")
            self.optimizer.zero_grad()
            losses.mean().backward()
            self.optimizer.step()
            self.hooks["worst"].offer(losses, x)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    engine = Engine(nn.Sequential(nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 5)), 0.05)
    data = TensorDataset(torch.rand(1600, 512), torch.randint(0, 5, (1600,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    for epoch in range(EPOCHS):
        engine.run(loader)
        print(f"epoch {epoch}: worst {engine.hooks['worst'].worst()[0].loss:.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"step": EPOCHS * len(loader), "epoch": EPOCHS}
        tell(locals(), {"heap": "engine.hooks['worst'].heap"}, done)


if __name__ == "__main__":
    main()
