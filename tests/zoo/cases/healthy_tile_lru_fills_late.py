"""Land cover from tiles of a large scene, with a bounded cache that is full late in the run."""

from collections import OrderedDict

import numpy as np
import torch
from torch import nn

TILES, KEPT, BATCH, STEPS = 6000, 1400, 4, 600


class TileCache:
    """Keeps the features of the tiles that were used last."""

    def __init__(self, size):
        self.size = size
        self.tiles = OrderedDict()

    def get(self, number):
        if number in self.tiles:
            self.tiles.move_to_end(number)
            return self.tiles[number]
        tile = np.random.default_rng(number).random((12, 32, 32), dtype=np.float32)
        tile -= tile.mean((1, 2), keepdims=True)
        self.tiles[number] = tile
        if len(self.tiles) > self.size:
            self.tiles.popitem(last=False)
        return tile


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    cache = TileCache(KEPT)
    model = nn.Sequential(
        nn.Conv2d(12, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 5),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        numbers = rng.integers(0, TILES, BATCH)
        x = torch.from_numpy(np.stack([cache.get(int(number)) for number in numbers]))
        loss = nn.functional.cross_entropy(model(x), torch.from_numpy(numbers % 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 120 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {len(cache.tiles)} tiles", flush=True)


if __name__ == "__main__":
    main()
