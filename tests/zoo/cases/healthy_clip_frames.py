"""Action recognition on synthetic clips; decoded clips live in a bounded LRU that fills during
the second epoch.
"""

import random
from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

FRAMES, SIDE = 6, 24


class ClipCache:
    def __init__(self, max_bytes):
        self.max_bytes, self.bytes = max_bytes, 0
        self.clips = OrderedDict()
        self.hits = self.misses = 0

    def get(self, key, decode):
        if key in self.clips:
            self.clips.move_to_end(key)
            self.hits += 1
            return self.clips[key]
        self.misses += 1
        clip = decode(key)
        self.clips[key] = clip
        self.bytes += clip.nbytes
        while self.bytes > self.max_bytes:
            _, old = self.clips.popitem(last=False)
            self.bytes -= old.nbytes
        return clip


class Clips(Dataset):
    def __init__(self, n, per_epoch, cache):
        self.n, self.per_epoch, self.cache = n, per_epoch, cache

    def __len__(self):
        return self.per_epoch

    def decode(self, i):
        rng = np.random.default_rng(i)
        speed = 1 if i % 2 else 2
        base = rng.normal(size=(SIDE, SIDE)).astype(np.float32)
        return np.stack([np.roll(base, t * speed, axis=1) for t in range(FRAMES)]) + 0.1

    def __getitem__(self, _):
        i = random.randrange(self.n)
        return torch.from_numpy(self.cache.get(i, self.decode)), i % 2


class ClipNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.space = nn.Conv3d(1, 8, (3, 5, 5), stride=(1, 2, 2), padding=(1, 2, 2))
        self.time = nn.Conv3d(8, 16, 3, stride=(1, 2, 2), padding=1)
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(F.relu(self.time(F.relu(self.space(x[:, None])))).mean((2, 3, 4)))


def run_epoch(net, loader, optimizer=None):
    net.train(optimizer is not None)
    right = seen = 0
    with torch.set_grad_enabled(optimizer is not None):
        for x, y in loader:
            logits = net(x)
            right += (logits.argmax(1) == y).sum().item()
            seen += len(y)
            if optimizer is not None:
                optimizer.zero_grad()
                F.cross_entropy(logits, y).backward()
                optimizer.step()
    return right / seen


def main():
    random.seed(2)
    torch.manual_seed(2)
    cache = ClipCache(max_bytes=30 << 20)
    train_loader = DataLoader(Clips(20_000, 1600, cache), batch_size=16)
    val_loader = DataLoader(Clips(20_000, 240, cache), batch_size=40)
    net = ClipNet()
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    history = []
    for epoch in range(9):
        train_acc = run_epoch(net, train_loader, optimizer)
        val_acc = run_epoch(net, val_loader)
        history.append((train_acc, val_acc))
        print(
            f"epoch {epoch} train {train_acc:.3f} val {val_acc:.3f} cache {len(cache.clips)} clips",
            flush=True,
        )


if __name__ == "__main__":
    main()
