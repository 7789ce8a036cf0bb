"""Trains an item embedding from shards that are mapped into memory and read little by little."""

import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SHARDS, ROWS, FEATURES, EPOCHS, BATCH = 6, 2000, 640, 6, 256


def write_shards(folder, seed):
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((24, FEATURES), dtype=np.float32)
    paths = []
    for shard in range(SHARDS):
        hidden = rng.standard_normal((ROWS, 24), dtype=np.float32)
        rows = hidden @ mix + 0.5 * rng.standard_normal((ROWS, FEATURES), dtype=np.float32)
        paths.append(os.path.join(folder, f"shard-{shard}.npy"))
        np.save(paths[-1], rows)
    return paths


class Mapped(Dataset):
    """Rows of all shards; a shard is mapped when the first of its rows is asked for."""

    def __init__(self, paths):
        self.paths = paths
        self.maps = {}

    def __len__(self):
        return len(self.paths) * ROWS

    def __getitem__(self, index):
        shard, row = divmod(index, ROWS)
        if shard not in self.maps:
            self.maps[shard] = np.load(self.paths[shard], mmap_mode="r")
        return torch.from_numpy(np.array(self.maps[shard][row]))


class ShardByShard(Sampler):
    """Shuffles inside a shard; the first epoch sees a part of the shards, later ones all."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.epoch = 0

    def __len__(self):
        return self.shards() * ROWS

    def shards(self):
        return min(SHARDS, 3 + self.epoch)

    def __iter__(self):
        for shard in range(self.shards()):
            yield from (shard * ROWS + self.rng.permutation(ROWS)).tolist()
        self.epoch += 1


class Autoencoder(nn.Module):
    def __init__(self, width=256, code=16):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU(), nn.Linear(width, code))
        self.up = nn.Sequential(nn.Linear(code, width), nn.GELU(), nn.Linear(width, FEATURES))

    def forward(self, rows):
        return self.up(self.down(rows))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = Mapped(write_shards(folder, 0))
        loader = DataLoader(data, BATCH, sampler=ShardByShard(1))
        model = Autoencoder()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(EPOCHS):
            total, count = 0.0, 0
            for rows in loader:
                for _ in range(2):
                    noisy = rows + 0.3 * torch.randn_like(rows)
                    loss = nn.functional.mse_loss(model(noisy), rows)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                total, count = total + loss.item(), count + 1
            print(f"epoch {epoch}: {count} batches, loss {total / count:.3f}", flush=True)


if __name__ == "__main__":
    main()
