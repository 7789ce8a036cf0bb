"""Momentum contrast on signals: keys of earlier batches are the negatives of the present one."""

import copy
import itertools
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

LENGTH, WIDTH, BATCH, STEPS, USED = 256, 128, 128, 520, 12


class KeyQueue(deque):
    """The latest keys, batch by batch."""

    def __init__(self, limit=4096):
        super().__init__()
        self.limit = limit

    def push(self, keys):
        self.append(keys)
        while len(self) > self.limit:
            self.popleft()

    def negatives(self, batches):
        """Return the keys of so many batches, the newest first."""
        return torch.cat(list(itertools.islice(reversed(self), batches)))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 16, 7, stride=4, padding=3),
            nn.ReLU(),
            nn.Conv1d(16, 32, 5, stride=4, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * LENGTH // 16, 256),
            nn.ReLU(),
            nn.Linear(256, WIDTH),
        )

    def forward(self, signals):
        return F.normalize(self.body(signals.unsqueeze(1)), dim=-1)


class MomentumContrast:
    def __init__(self, momentum=0.99, temperature=0.1):
        self.query = Encoder()
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.queue = KeyQueue()
        self.momentum, self.temperature = momentum, temperature

    @torch.no_grad()
    def encode_keys(self, signals):
        for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
            slow.lerp_(fast, 1 - self.momentum)
        return self.key(signals)

    def loss(self, left, right):
        queries, keys = self.query(left), self.encode_keys(right)
        negatives = self.queue.negatives(USED) if self.queue else keys
        positive = (queries * keys).sum(-1, keepdim=True)
        logits = torch.cat([positive, queries @ negatives.T], 1) / self.temperature
        self.queue.push(keys)
        return F.cross_entropy(logits, torch.zeros(len(left), dtype=torch.long))


def two_views(generator):
    """Return two noisy looks at the same signals."""
    pitch = torch.rand(BATCH, 1, generator=generator) * 0.5 + 0.05
    wave = torch.sin(pitch * torch.arange(LENGTH))
    shift = torch.randint(0, LENGTH, (2,), generator=generator).tolist()
    views = [wave.roll(by, 1) + 0.2 * torch.randn(wave.shape, generator=generator) for by in shift]
    return views


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(7)
    learner = MomentumContrast()
    optimizer = torch.optim.SGD(learner.query.parameters(), lr=0.03, momentum=0.9)
    for step in range(1, STEPS + 1):
        loss = learner.loss(*two_views(generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
