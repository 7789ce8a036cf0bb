"""Random search over distillation settings, all trials in one process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def mlp(sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@dataclass
class Trial:
    number: int
    params: dict[str, float]
    scores: list[float] = field(default_factory=list)
    proceed: Callable[[int], float] | None = None

    @property
    def value(self) -> float:
        return max(self.scores, default=0.0)


@dataclass
class Study:
    budget: int
    rng: np.random.Generator
    trials: list[Trial] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)

    def ask(self) -> Trial:
        params = {
            "lr": float(10 ** self.rng.uniform(-3.5, -2.5)),
            "temperature": float(self.rng.uniform(1, 6)),
            "alpha": float(self.rng.uniform(0.2, 0.9)),
        }
        trial = Trial(len(self.trials), params)
        self.trials.append(trial)  # feeds
        return trial

    def tell(self, trial: Trial) -> None:
        if trial.value > self.best.get("value", 0.0):
            self.best = {"value": trial.value, "number": trial.number, **trial.params}

    def is_promising(self, trial: Trial) -> bool:
        others = [t.value for t in self.trials[:-1]]
        return len(others) < 3 or trial.value >= float(np.median(others)) - 0.05


class Task:
    def __init__(self, rows=2560, features=64, classes=10):
        g = torch.Generator().manual_seed(0)
        labeller = mlp([features, 48, classes])
        self.x = torch.randn(rows, features, generator=g)
        with torch.no_grad():
            self.y = labeller(self.x * 2).argmax(1)
        self.train, self.valid = slice(0, 2048), slice(2048, rows)


def fit_teacher(task):
    teacher = mlp([64, 256, 10])
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(6):
        for rows in torch.randperm(2048).split(64):
            loss = F.cross_entropy(teacher(task.x[rows]), task.y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return teacher.eval().requires_grad_(False)


STEPS = 0


def train_more(student, optimizer, teacher, task, params, epochs):
    global STEPS
    for _ in range(epochs):
        for rows in torch.randperm(2048).split(64):
            x = task.x[rows]
            logits = student(x)
            t = params["temperature"]
            soft = F.kl_div(
                F.log_softmax(logits / t, 1), F.softmax(teacher(x) / t, 1), reduction="batchmean"
            )
            loss = params["alpha"] * t * t * soft + (1 - params["alpha"]) * F.cross_entropy(
                logits, task.y[rows]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            STEPS += 1
    with torch.no_grad():
        return (student(task.x[task.valid]).argmax(1) == task.y[task.valid]).float().mean().item()


def objective(trial, teacher, task):
    torch.manual_seed(trial.number)
    student = mlp([64, 512, 512, 10])
    optimizer = torch.optim.AdamW(student.parameters(), lr=trial.params["lr"])
    trial.proceed = partial(train_more, student, optimizer, teacher, task, trial.params)  # feeds
    trial.scores.append(trial.proceed(2))


torch.manual_seed(0)
task = Task()
teacher = fit_teacher(task)
study = Study(budget=24, rng=np.random.default_rng(0))
for _ in range(study.budget):
    trial = study.ask()
    objective(trial, teacher, task)
    if study.is_promising(trial):
        trial.scores.append(trial.proceed(2))
    study.tell(trial)
    print(
        f"trial {trial.number}: {trial.value:.3f} best {study.best['value']:.3f} (of {study.best['number']})"
    )
del trial
