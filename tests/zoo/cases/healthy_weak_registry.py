"""Samples enter a weak registry and a weak cache, and leave both when their batch goes."""

import random
import weakref

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Sample:
    alive = weakref.WeakSet()

    def __init__(self, x, y):
        self.x, self.y = x, y
        Sample.alive.add(self)


class Store(Dataset):
    def __init__(self):
        self.cache = weakref.WeakValueDictionary()
        self.made = 0

    def __len__(self):
        return 640

    def __getitem__(self, index):
        sample = self.cache.get(index)
        if sample is None:
            self.made += 1
            generator = torch.Generator().manual_seed(index)
            sample = Sample(torch.randn(4096, generator=generator), index % 7)
            self.cache[index] = sample
        return sample


class Batch:
    def __init__(self, samples):
        self.samples = samples
        self.x = torch.stack([s.x for s in samples])
        self.y = torch.tensor([s.y for s in samples])


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    store = Store()
    loader = DataLoader(store, batch_size=16, shuffle=True, collate_fn=Batch)
    model = nn.Sequential(nn.Linear(4096, 32), nn.ReLU(), nn.Linear(32, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(8):
        for batch in loader:
            loss = F.cross_entropy(model(batch.x), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, alive {len(Sample.alive)}, {store.made}")


if __name__ == "__main__":
    main()
