"""Reptile on regression of curves: each task trains a copy of the model for some steps."""

import argparse
import copy

import torch
from torch import nn


class Curves:
    """Tasks: curves of some waves each, of which a few points are seen."""

    def __init__(self, seed, waves=3):
        self.random, self.waves = torch.Generator().manual_seed(seed), waves

    def task(self, points=256):
        height, pitch, phase = torch.rand(3, self.waves, generator=self.random)
        x = 10 * torch.rand(points, 1, generator=self.random) - 5
        y = (height * torch.sin((0.5 + pitch) * x + 6.28 * phase)).sum(1, keepdim=True)
        return x, y


class Features(nn.Module):
    """Random waves that a task may turn."""

    def __init__(self, width):
        super().__init__()
        self.pitch = nn.Parameter(torch.randn(1, width))
        self.phase = nn.Parameter(6.28 * torch.rand(width))

    def forward(self, x):
        return torch.sin(x * self.pitch + self.phase)


def model(width=256):
    return nn.Sequential(
        Features(width), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
        nn.Linear(width, 1),
    )  # fmt: skip


class Learner:
    """One task's copy, its optimizer and how it came along."""

    def __init__(self, meta, lr):
        self.model = copy.deepcopy(meta)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr, betas=(0.0, 0.999))
        self.trail = []

    def adapt(self, x, y, steps):
        for _ in range(steps):
            some = torch.randint(0, len(x), (64,))
            guess = self.model(x[some])
            loss = nn.functional.mse_loss(guess, y[some])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.trail.append((loss, guess))
        return self


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=240)
    parser.add_argument("--inner", type=int, default=8)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    curves, meta = Curves(0), model()
    for number in range(1, arguments.tasks + 1):
        learner = Learner(meta, lr=2e-3).adapt(*curves.task(), arguments.inner)
        rate = 0.3 * (1 - number / arguments.tasks)
        with torch.no_grad():
            for slow, fast in zip(meta.parameters(), learner.model.parameters(), strict=True):
                slow.lerp_(fast, rate)
        if number % 24 == 0:
            first, last = (learner.trail[at][0].item() for at in (0, -1))
            print(f"task {number}: {first:.3f} to {last:.3f}", flush=True)


if __name__ == "__main__":
    main()
