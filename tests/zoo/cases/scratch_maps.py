"""Repairs point clouds tile by tile in scratch memory that a native tool could share."""

import mmap

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

POINTS, WIDTH, TILES, LARGE = 6000, 64, 360, 5


class Scratch:
    """A mapped piece of memory that an array looks into."""

    def __init__(self, size):
        self.map = mmap.mmap(-1, size)

    def array(self, shape):
        count = int(np.prod(shape))
        return np.frombuffer(self.map, dtype=np.float32, count=count).reshape(shape)

    def close(self):
        self.map.close()


class ScratchPool:
    """Gives scratch memory for a tile, and takes it back."""

    def __init__(self):
        self.busy = []

    def take(self, size):
        scratch = Scratch(size)
        self.busy.append(scratch)
        return scratch

    def give_back(self, scratch):
        try:
            scratch.close()
        except BufferError:  # somebody still looks into it: closed with the pool
            return
        self.busy.remove(scratch)

    def close(self):
        for scratch in self.busy:
            scratch.close()


class Repair(nn.Module):
    """Moves the points of a tile to where a surface would be."""

    def __init__(self):
        super().__init__()
        self.points = nn.Sequential(nn.Linear(3, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.move = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3))

    def forward(self, cloud):
        features = self.points(cloud)
        whole = features.amax(0, keepdim=True).expand_as(features)
        return cloud + self.move(torch.cat([features, whole], -1))


def scanned(rng, array):
    """Fill an array with the points of a rough sphere and return the smooth one."""
    ball = rng.standard_normal(array.shape).astype(np.float32)
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    array[:] = ball + 0.05 * rng.standard_normal(array.shape).astype(np.float32)
    return torch.from_numpy(ball)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    pool, model = ScratchPool(), Repair()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    worst = None
    for tile in range(1, TILES + 1):
        points = POINTS * 2 if tile % LARGE == 0 else POINTS
        scratch = pool.take(points * 3 * 4)
        array = scratch.array((points, 3))
        surface = scanned(rng, array)
        loss = F.mse_loss(model(torch.from_numpy(array)), surface)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if worst is None or loss.item() > worst:
            worst = loss.item()
        pool.give_back(scratch)
        if tile % 30 == 0:
            print(f"tile {tile}: loss {loss.item():.5f}, worst {worst:.4f}", flush=True)
            worst = None
    del array
    print(f"{len(pool.busy)} pieces of scratch memory closed late")


if __name__ == "__main__":
    main()
