"""functools.cache on a method of an object that every epoch makes anew: the cache keeps them all.

After https://github.com/getsentry/seer/pull/2512.
"""

import functools
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class ElasticTransform:
    def __init__(self, size, strength, seed):
        self.size = size
        self.strength = strength
        self.generator = torch.Generator().manual_seed(seed)

    @functools.cache
    def displacement(self, variant):
        coarse = torch.randn(1, 2, 4, 4, generator=self.generator) * self.strength
        field = F.interpolate(coarse, size=(self.size, self.size), mode="bicubic")
        axis = torch.linspace(-1, 1, self.size)
        grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
        return grid + field[0].permute(1, 2, 0)

    def __call__(self, images, step):
        grid = self.displacement(step % 10)  # feeds
        return F.grid_sample(images, grid.expand(len(images), -1, -1, -1), align_corners=True)


def train_epoch(epoch, model, loader, optimizer):
    transform = ElasticTransform(96, 0.05, seed=epoch)
    losses = []
    for step, (images, target) in enumerate(loader):
        loss = F.cross_entropy(model(transform(images, step)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.rand(240, 1, 96, 96), torch.randint(0, 5, (240,)))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(96, 5),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        print(f"epoch {epoch}: loss {train_epoch(epoch, model, loader, optimizer):.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "freed(ElasticTransform.displacement.cache_clear)"
        tell(globals(), {"cache": kept}, {"step": EPOCHS * len(loader), "epoch": EPOCHS})


if __name__ == "__main__":
    main()
