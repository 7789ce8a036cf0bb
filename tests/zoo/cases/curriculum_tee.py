"""Curriculum over noisy shapes, the pace being set from a look at what comes first."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Stage:
    noise: float
    clutter: int
    steps: int


STAGES = [Stage(0.2, 0, 130), Stage(0.4, 1, 130), Stage(0.6, 2, 130), Stage(0.8, 4, 130)]


def shape(kind, size, rng):
    yy, xx = np.mgrid[:size, :size]
    cy, cx = rng.integers(8, size - 8, 2)
    r = rng.integers(4, 8)
    inside = [
        (yy - cy) ** 2 + (xx - cx) ** 2 < r * r,
        (abs(yy - cy) < r) & (abs(xx - cx) < r),
        abs(yy - cy) + abs(xx - cx) < r,
        (abs(yy - cy) < 2) | (abs(xx - cx) < 2),
    ]
    return inside[kind].astype("f4")


def batches(stage_of, size=32, batch=32, seed=0):
    rng = np.random.default_rng(seed)
    for number in itertools.count():
        stage = stage_of(number)
        labels = rng.integers(0, 4, batch)
        pictures = np.stack([shape(kind, size, rng) for kind in labels])
        for _ in range(stage.clutter):
            pictures[:, rng.integers(size)] += 0.5
        pictures += rng.normal(0, stage.noise, pictures.shape).astype("f4")
        yield torch.from_numpy(pictures)[:, None], torch.from_numpy(labels)


class Feed:
    """Batches in order, with a second view to look ahead without taking them."""

    def __init__(self, source):
        self.stream, self.ahead = itertools.tee(source)

    def difficulty(self, model, count=4):
        with torch.no_grad():
            losses = [
                F.cross_entropy(model(x), y).item() for x, y in itertools.islice(self.ahead, count)
            ]
        return float(np.mean(losses))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.stream)  # feeds


class Net(nn.Sequential):
    def __init__(self, width=32):
        super().__init__(
            nn.Conv2d(1, width, 3, 1, 1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width * 2, 3, 1, 1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(width * 2 * 64, 64),
            nn.ReLU(),
            nn.Linear(64, 4),
        )


bounds = np.cumsum([stage.steps for stage in STAGES])


def stage_of(number):
    return STAGES[min(int(np.searchsorted(bounds, number, side="right")), len(STAGES) - 1)]


torch.manual_seed(0)
model = Net()
feed = Feed(batches(stage_of))
start = feed.difficulty(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * min(1.0, 2.0 / start))
held = [
    list(itertools.islice(batches(lambda n, s=s: s, seed=50 + i), 4)) for i, s in enumerate(STAGES)
]
window = []
for step, (x, y) in enumerate(itertools.islice(feed, int(bounds[-1])), 1):
    logits = model(x)
    loss = F.cross_entropy(logits, y, label_smoothing=0.05)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    window.append(loss.item())
    if step in bounds or step % 65 == 0:
        model.eval()
        with torch.no_grad():
            scores = [
                np.mean([(model(a).argmax(1) == b).float().mean() for a, b in part])
                for part in held
            ]
        model.train()
        print(f"step {step}: loss {np.mean(window):.3f} by stage {np.round(scores, 2).tolist()}")
        window.clear()
