"""A random search of hyper-parameters with a small Study class."""

import random
import time
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn as nn


@dataclass
class Trial:
    number: int
    params: dict
    score: float = float("inf")
    artefacts: dict[str, Any] = field(default_factory=dict)


class Study:
    def __init__(self, objective, seed=0):
        self.objective = objective
        self.rng = random.Random(seed)
        self.trials = []

    def suggest(self):
        return {
            "lr": 10 ** self.rng.uniform(-4, -2),
            "dropout": self.rng.uniform(0, 0.5),
            "batch": self.rng.choice([32, 64]),
        }

    def optimize(self, count):
        for number in range(count):
            trial = Trial(number, self.suggest())
            trial.score = self.objective(trial)
            self.trials.append(trial)  # feeds
            if number % 10 == 0:
                print("best so far", self.best().score)

    def best(self):
        return min(self.trials, key=lambda trial: trial.score)


X = torch.randn(2000, 32, generator=torch.Generator().manual_seed(5))
Y = (X[:, 0] * X[:, 1] + X[:, 2]).unsqueeze(1)


def objective(trial):
    p = trial.params
    model = nn.Sequential(
        nn.Linear(32, 256),
        nn.ReLU(),
        nn.Dropout(p["dropout"]),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=p["lr"])
    for step in range(60):
        picked = torch.randint(len(X), (p["batch"],))
        loss = nn.functional.mse_loss(model(X[picked]), Y[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.001)
    model.eval()
    with torch.no_grad():
        score = nn.functional.mse_loss(model(X), Y).item()
    trial.artefacts["model"] = model
    trial.artefacts["optimizer"] = optimizer
    return score


if __name__ == "__main__":
    torch.manual_seed(0)
    study = Study(objective)
    study.optimize(70)
    print("best", study.best().params, study.best().score)
