"""Searches a small CNN for weld inspection: cross-validated trials, pruned early by the scores of earlier ones."""

import abc
import math
import random
from contextlib import contextmanager
from statistics import quantiles

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

TRIALS, FOLDS, EPOCHS, BATCH, SIDE, CLASSES = 44, 3, 2, 32, 24, 4


class TrialPruned(Exception):
    """Raised inside an objective when the trial cannot reach the better ones any more."""

    def __init__(self, fold, score, bar):
        super().__init__(f"fold {fold}: {score:.3f} below {bar:.3f}")
        self.fold, self.score, self.bar = fold, score, bar


class Choice(abc.ABC):
    @abc.abstractmethod
    def draw(self, rng): ...


class OneOf(Choice):
    def __init__(self, *options):
        self.options = options

    def draw(self, rng):
        return rng.choice(self.options)


class LogUniform(Choice):
    def __init__(self, low, high):
        self.low, self.high = math.log(low), math.log(high)

    def draw(self, rng):
        return math.exp(rng.uniform(self.low, self.high))


SPACE = {
    "lr": LogUniform(2e-4, 3e-2),
    "width": OneOf(12, 16, 24),
    "depth": OneOf(1, 2),
    "noise": OneOf(0.0, 0.1, 0.3),
    "flip": OneOf(True, False),
    "optimizer": OneOf(torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop),
}


class Trial:
    def __init__(self, number, params):
        self.number, self.params = number, params
        self.scores, self.status, self.error = [], "running", None

    @property
    def value(self):
        return sum(self.scores) / len(self.scores) if self.scores else 0.0


class Study:
    def __init__(self, seed, warmup=5, share=60):
        self.rng, self.warmup, self.share = random.Random(seed), warmup, share
        self.trials = []

    def ask(self):
        trial = Trial(
            len(self.trials), {name: choice.draw(self.rng) for name, choice in SPACE.items()}
        )
        self.trials.append(trial)
        return trial

    def check(self, trial, fold):
        rivals = [t.scores[fold] for t in self.trials if t is not trial and len(t.scores) > fold]
        if len(rivals) >= self.warmup:
            bar = quantiles(rivals, n=100)[self.share - 1]
            if trial.scores[fold] < bar and fold < FOLDS - 1:
                raise TrialPruned(fold, trial.scores[fold], bar)

    @contextmanager
    def running(self, trial):
        try:
            yield trial.params
        except TrialPruned as pruned:
            trial.status, trial.error = "pruned", pruned  # feeds
        else:
            trial.status = "complete"

    def best(self):
        return max((t for t in self.trials if t.status == "complete"), key=lambda t: t.value)

    def optimize(self, objective, count):
        for _ in range(count):
            trial = self.ask()
            with self.running(trial) as params:
                objective(self, trial, **params)
            if trial.number % 6 == 0:
                note = "" if trial.error is None else f" ({trial.error})"
                print(f"trial {trial.number:2d} {trial.status} {trial.value:.3f}{note}")


def weld_tiles(count, seed):
    gen = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=gen)
    axis = torch.linspace(-1, 1, SIDE)
    seam = torch.exp(-40 * (axis - 0.2 * torch.randn(count, 1, generator=gen)) ** 2)
    images = seam[:, None, None, :].repeat(1, 3, SIDE, 1)
    for i, label in enumerate(labels.tolist()):
        y, x = torch.randint(3, SIDE - 8, (2,), generator=gen).tolist()
        images[i, :, y : y + 2 + label, x : x + 5 - label] += 0.9 * (label > 0)
    return images + 0.35 * torch.randn(images.shape, generator=gen), labels


def build(width, depth):
    layers, into = [], 3
    for level in range(depth + 1):
        out = width * 2**level
        layers += [
            nn.Conv2d(into, out, 3, stride=2 if level else 1, padding=1),
            nn.BatchNorm2d(out),
            nn.ReLU(),
        ]
        into = out
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(into * 9, CLASSES)
    )


def make_objective(images, labels):
    parts = torch.randperm(len(images)).chunk(FOLDS)

    def objective(study, trial, lr, width, depth, noise, flip, optimizer):
        for fold, held_out in enumerate(parts):
            rest = torch.cat([p for k, p in enumerate(parts) if k != fold])
            x, y = images[rest], labels[rest]
            x = x + noise * torch.randn_like(x)
            model = build(width, depth)
            update = optimizer(model.parameters(), lr=lr)
            for _ in range(EPOCHS):
                model.train()
                for batch in torch.randperm(len(x)).split(BATCH):
                    inputs = x[batch].flip(-1) if flip and torch.rand(()) < 0.5 else x[batch]
                    loss = F.cross_entropy(model(inputs), y[batch])
                    update.zero_grad()
                    loss.backward()
                    update.step()
            model.eval()
            with torch.no_grad():
                trial.scores.append(
                    (model(images[held_out]).argmax(1) == labels[held_out]).float().mean().item()
                )
            study.check(trial, fold)

    return objective


def main():
    torch.manual_seed(6)
    images, labels = weld_tiles(432, 1)
    study = Study(seed=6)
    study.optimize(make_objective(images, labels), TRIALS)
    best = study.best()
    states = [t.status for t in study.trials]
    print(
        f"best trial {best.number} {best.value:.3f} lr {best.params['lr']:.4f}; "
        f"{states.count('pruned')} pruned, {states.count('complete')} complete"
    )


if __name__ == "__main__":
    main()
