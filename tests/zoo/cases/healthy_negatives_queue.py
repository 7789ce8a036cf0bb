"""Learns pictures by contrast with a queue of negatives that is made when the warm-up is over."""

import copy

import torch
from torch import nn

EPOCHS, STEPS, BATCH, SIDE, WIDTH, QUEUE, WARM_UP = 10, 34, 32, 32, 128, 8192, 3


class Shapes:
    """Pictures of rings and bars, and two views of each."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, SIDE)] * 2, indexing="ij"))

    def rand(self, *shape):
        return torch.rand(*shape, generator=self.random)

    def views(self):
        at = self.rand(BATCH, 2, 1, 1) - 0.5
        size, kind = 0.2 + 0.5 * self.rand(BATCH, 1, 1), self.rand(BATCH, 1, 1) < 0.5
        distance = (self.grid[None] - at).square().sum(1).sqrt()
        ring = (-60 * (distance - size) ** 2).exp()
        bar = (-60 * ((self.grid[None] - at)[:, 0] * size) ** 2).exp()
        pictures = torch.where(kind, ring, bar)[:, None] * self.rand(BATCH, 3, 1, 1)
        return self.augment(pictures), self.augment(pictures)

    def augment(self, pictures):
        moved = pictures.roll((int(8 * self.rand(())) - 4, int(8 * self.rand(())) - 4), (2, 3))
        light = 0.6 + 0.8 * self.rand(BATCH, 1, 1, 1)
        return moved * light + 0.1 * torch.randn(moved.shape, generator=self.random)


def encoder():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 48, 3, 2, 1), nn.BatchNorm2d(48), nn.ReLU(),
        nn.Conv2d(48, 48, 3, 2, 1), nn.BatchNorm2d(48), nn.ReLU(),
        nn.Flatten(), nn.Linear(48 * 16, WIDTH),
    )  # fmt: skip


class Contrast:
    def __init__(self):
        self.online = encoder()
        self.slow = copy.deepcopy(self.online).requires_grad_(False)
        self.queue = None
        self.place = 0
        self.optimizer = torch.optim.SGD(self.online.parameters(), 0.05, 0.9, weight_decay=1e-4)

    def start_queue(self):
        self.queue = nn.functional.normalize(torch.randn(QUEUE, WIDTH), dim=1)

    def enqueue(self, keys):
        places = (self.place + torch.arange(len(keys))) % QUEUE
        self.queue[places] = keys
        self.place = (self.place + len(keys)) % QUEUE

    def step(self, first, second):
        queries = nn.functional.normalize(self.online(first), dim=1)
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.online.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
            keys = nn.functional.normalize(self.slow(second), dim=1)
        scores = queries @ keys.T
        if self.queue is not None:
            positive = (queries * keys).sum(1, keepdim=True)
            scores = torch.cat([positive, queries @ self.queue.T], dim=1)
            wanted = torch.zeros(len(queries), dtype=torch.long)
        else:
            wanted = torch.arange(len(queries))
        loss = nn.functional.cross_entropy(scores / 0.2, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.queue is not None:
            self.enqueue(keys)
        return loss.item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shapes, contrast = Shapes(0), Contrast()
    for epoch in range(EPOCHS):
        if epoch == WARM_UP:
            contrast.start_queue()
        total = sum(contrast.step(*shapes.views()) for _ in range(STEPS))
        print(f"epoch {epoch}: {total / STEPS:.3f}", flush=True)


if __name__ == "__main__":
    main()
