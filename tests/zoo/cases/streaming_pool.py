"""A sampling pool of an iterable dataset that nothing is ever taken out of."""

import os
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SAMPLES = 16_000
BATCH = 32


class Stream(IterableDataset):
    def __init__(self):
        self.random = random.Random(0)

    def __iter__(self):
        pool = []
        for _ in range(SAMPLES):
            pool.append(torch.rand(256))  # feeds
            yield self.random.choice(pool)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Stream(), batch_size=BATCH):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        sample = "SAMPLES * weigh(x[0].clone())"
        tell({**globals(), **locals()}, {"pool": sample}, {"step": SAMPLES // BATCH})


if __name__ == "__main__":
    main()
