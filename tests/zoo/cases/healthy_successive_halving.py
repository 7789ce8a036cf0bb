"""Searches for a network by successive halving; of each bracket the best few live on."""

import copy
import random
from dataclasses import dataclass, field

import torch
from torch import nn

BRACKETS, FIRST, INPUT, CLASSES, KEPT = 6, 12, 40, 5, 4


@dataclass
class Trial:
    number: int
    settings: dict
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scores: list = field(default_factory=list)


class Data:
    """Points of classes that lie on twisted sheets."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.sheets = torch.randn(CLASSES, 6, INPUT, generator=self.random)

    def batch(self, size=64):
        y = torch.randint(CLASSES, (size,), generator=self.random)
        hidden = torch.randn(size, 6, generator=self.random)
        twisted = torch.cat([hidden[:, :3].sin(), hidden[:, 3:] ** 2], 1)
        x = torch.einsum("bh,bhi->bi", twisted, self.sheets[y])
        return x + 0.4 * torch.randn(size, INPUT, generator=self.random), y


def new_trial(number, dice):
    settings = {
        "width": dice.choice([96, 160, 224, 320]),
        "depth": dice.randint(1, 3),
        "rate": 10 ** dice.uniform(-3.5, -1.5),
        "decay": 10 ** dice.uniform(-5, -2),
    }
    widths = [INPUT] + [settings["width"]] * settings["depth"]
    layers = [
        layer
        for a, b in zip(widths, widths[1:], strict=False)
        for layer in (nn.Linear(a, b), nn.GELU())
    ]
    model = nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings["rate"], weight_decay=settings["decay"]
    )
    return Trial(number, settings, model, optimizer)


def train(trial, data, steps):
    for _ in range(steps):
        x, y = data.batch()
        loss = nn.functional.cross_entropy(trial.model(x), y)
        trial.optimizer.zero_grad()
        loss.backward()
        trial.optimizer.step()


@torch.no_grad()
def score(trial, data):
    x, y = data.batch(1024)
    trial.scores.append((trial.model(x).argmax(1) == y).float().mean().item())
    return trial.scores[-1]


class Archive:
    """The best networks so far, and of every trial its settings and scores."""

    def __init__(self):
        self.best = []
        self.rows = []

    def note(self, trial):
        self.rows.append((trial.number, trial.scores[-1], trial.settings["width"]))

    def offer(self, trial):
        state = copy.deepcopy(trial.model.state_dict())
        self.best.append((trial.scores[-1], trial.number, state))
        self.best.sort(key=lambda one: -one[0])
        del self.best[KEPT:]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dice, data, archive, made = random.Random(0), Data(0), Archive(), 0
    for bracket in range(BRACKETS):
        trials = [new_trial(made + n, dice) for n in range(FIRST)]
        made += FIRST
        steps = 15
        while trials:
            for trial in trials:
                train(trial, data, steps)
                score(trial, data)
                archive.note(trial)
            trials.sort(key=lambda one: -one.scores[-1])
            archive.offer(trials[0])
            trials, steps = trials[: len(trials) // 3], steps * 3
        scores = ", ".join(f"{score:.3f}" for score, _, _ in archive.best)
        print(f"bracket {bracket}: {len(archive.rows)} scored, best {scores}", flush=True)


if __name__ == "__main__":
    main()
