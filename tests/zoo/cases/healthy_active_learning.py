"""Active learning: frozen features are computed once per sample and kept; the pool is drawn
from at random.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

POOL, ROUNDS, QUERY = 4000, 12, 60


class RawPool:
    """Stands for files on disk: sample i is always the same."""

    def __init__(self, n):
        self.n = n
        self.labels = np.random.default_rng(0).integers(0, 4, n)

    def load(self, i):
        rng = np.random.default_rng(1000 + i)
        image = rng.normal(size=(1, 20, 20)).astype(np.float32)
        image[0, :, 5 * self.labels[i] : 5 * self.labels[i] + 5] += 0.5
        return torch.from_numpy(image)


class FrozenFeatures:
    def __init__(self, pool, width=24):
        self.pool = pool
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(6),
            nn.Flatten(),
        )
        self.net.requires_grad_(False)
        self.known = {}

    def __call__(self, indices):
        missing = [int(i) for i in indices if int(i) not in self.known]
        if missing:
            with torch.no_grad():
                rows = self.net(torch.stack([self.pool.load(i) for i in missing]))
            for i, row in zip(missing, rows):
                self.known[i] = row.clone()
        return torch.stack([self.known[int(i)] for i in indices])


class ActiveLearner:
    def __init__(self):
        self.rng = np.random.default_rng(5)
        self.pool = RawPool(POOL)
        self.features = FrozenFeatures(self.pool)
        self.labelled = set(self.rng.choice(POOL, 100, replace=False).tolist())
        self.log = []

    def fit(self):
        head = nn.Sequential(nn.Linear(24 * 36, 64), nn.ReLU(), nn.Linear(64, 4))
        optimizer = torch.optim.Adam(head.parameters(), 1e-3)
        owned = np.array(sorted(self.labelled))
        for _ in range(330):
            rows = self.rng.choice(owned, 64)
            loss = F.cross_entropy(
                head(self.features(rows)), torch.from_numpy(self.pool.labels[rows])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return head

    @torch.no_grad()
    def uncertain(self, head, candidates=1200):
        drawn = np.unique(self.rng.choice(POOL, candidates))
        drawn = np.array([i for i in drawn if i not in self.labelled])
        p = head(self.features(drawn)).softmax(1)
        entropy = -(p * p.clamp_min(1e-9).log()).sum(1)
        return drawn[entropy.topk(QUERY).indices.numpy()]

    @torch.no_grad()
    def accuracy(self, head):
        rows = np.arange(0, POOL, 10)
        return (head(self.features(rows)).argmax(1).numpy() == self.pool.labels[rows]).mean()

    def run(self):
        for number in range(ROUNDS):
            head = self.fit()
            score = float(self.accuracy(head))
            self.log.append(score)
            self.labelled.update(self.uncertain(head).tolist())
            print(
                f"round {number} accuracy {score:.3f} labelled {len(self.labelled)} "
                f"known {len(self.features.known)}",
                flush=True,
            )


if __name__ == "__main__":
    torch.manual_seed(5)
    ActiveLearner().run()
