"""Two persistent workers, each with an LRU cache of decoded clips that is soon full."""

import functools
import zlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, clips):
        rng = np.random.default_rng(0)
        self.packed = [
            zlib.compress(rng.integers(0, 4, (8, 48, 48), dtype=np.uint8).tobytes(), 1)
            for _ in range(clips)
        ]

    def __len__(self):
        return len(self.packed) * 4

    def __getitem__(self, index):
        clip = decode(self.packed[index // 4])
        frames = clip[(index % 4) * 2 : (index % 4) * 2 + 2]
        return torch.from_numpy(frames.astype(np.float32)), int(frames.sum()) % 3


@functools.lru_cache(maxsize=32)
def decode(packed):
    return np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(8, 48, 48)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        Clips(160), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(nn.Conv2d(2, 4, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(900, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(7):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
