"""Samples are drawn with replacement and cached: the last are met late, then the cache is full."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler

EPOCHS = 30


class Cached(Dataset):
    def __init__(self):
        self.cache = {}

    def __len__(self):
        return 600

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = torch.rand(4096)
        return self.cache[index], index % 5


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Cached()
    sampler = RandomSampler(data, replacement=True, num_samples=200)
    loader = DataLoader(data, batch_size=20, sampler=sampler)
    model = nn.Linear(4096, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch}: loss {loss.item():.3f}, {len(data.cache)} cached")


if __name__ == "__main__":
    main()
