"""A shuffle pool of an iterable dataset that fills, and gives back a sample for each that comes."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SAMPLES = 8000
POOL = 3000


class Stream(IterableDataset):
    def __init__(self):
        self.random = random.Random(0)

    def __iter__(self):
        pool = []
        for _ in range(SAMPLES):
            pool.append(torch.rand(256))
            if len(pool) == POOL:
                yield pool.pop(self.random.randrange(POOL))
        yield from pool


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        for x in DataLoader(Stream(), batch_size=32):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
