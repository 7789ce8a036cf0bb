"""A worker of a DataLoader that lives on and caches every augmented sample by its epoch's seed.

After https://github.com/pytorch/pytorch/issues/13246, where the growth is in the workers.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EPOCHS = 7


class Cached(Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size
        self.cache = []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = torch.rand(self.size)
        self.cache.append((index, image))  # feeds
        return image[:64].clone(), index % 3


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = Cached(200, 40_000)
    loader = DataLoader(dataset, batch_size=10, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        done = {"step": EPOCHS * len(loader), "epoch": EPOCHS, "pass": EPOCHS}
        tell(globals(), {"cache": "200 * 40_000 * 4 * EPOCHS"}, done)


if __name__ == "__main__":
    main()
