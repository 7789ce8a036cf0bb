"""Contrastive pre-training of a small encoder with a queue of keys."""

import time
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()
        )
        self.head = nn.Linear(32, dim)

    def forward(self, x):
        return F.normalize(self.head(self.conv(x).mean((2, 3))), dim=1)


class KeyQueue:
    """Negatives of the last batches."""

    def __init__(self, size):
        self.size = size
        self.keys = deque()
        self.filled = 0

    def push(self, keys):
        self.keys.append(keys)  # feeds
        self.filled += len(keys)
        if self.filled > self.size:
            self.keys.popleft()

    def sample(self, count):
        picked = torch.randint(len(self.keys), (count,)).tolist()
        return torch.cat([self.keys[i] for i in picked])

    def new_epoch(self):
        self.filled = 0


@torch.no_grad()
def momentum_update(online, target, m=0.99):
    for p, q in zip(online.parameters(), target.parameters()):
        q.mul_(m).add_(p, alpha=1 - m)


def pretrain(epochs=25, steps=32):
    torch.manual_seed(0)
    online, target = Encoder(), Encoder()
    target.load_state_dict(online.state_dict())
    queue = KeyQueue(size=64 * 32)
    optimizer = torch.optim.SGD(online.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        queue.new_epoch()
        total = 0.0
        for _ in range(steps):
            images = torch.rand(64, 3, 32, 32)
            q = online(images + 0.1 * torch.randn_like(images))
            with torch.no_grad():
                k = target(images.flip(3))
            queue.push(k)
            negatives = queue.sample(4)
            logits = torch.cat([(q * k).sum(1, keepdim=True), q @ negatives.t()], 1) / 0.2
            loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            momentum_update(online, target)
            total += loss.item()
            time.sleep(0.004)
        print(f"epoch {epoch} loss {total / steps:.3f}")


if __name__ == "__main__":
    pretrain()
