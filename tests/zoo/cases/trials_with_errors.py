"""Random search with cross-validation and pruning for a churn model."""

import math
import random
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn


class TrialPruned(Exception):
    pass


@dataclass
class Trial:
    number: int
    params: dict[str, Any] = field(default_factory=dict)
    scores: list[float] = field(default_factory=list)
    state: str = "running"
    reason: BaseException | None = None

    def suggest(self, rng):
        self.params = {
            "lr": 10 ** rng.uniform(-4.0, -1.7),
            "width": rng.choice([32, 64, 96]),
            "depth": rng.choice([1, 2, 3]),
            "dropout": rng.uniform(0, 0.5),
            "weight_decay": 10 ** rng.uniform(-6, -2),
        }
        return self.params

    def report(self, score, study):
        self.scores.append(score)
        if study.should_prune(self):
            raise TrialPruned(f"fold {len(self.scores)} scored {score:.4f}")


class Study:
    def __init__(self, seed, keep_best=0.35, startup=3):
        self.rng = random.Random(seed)
        self.trials: list[Trial] = []
        self.keep_best, self.startup = keep_best, startup

    def should_prune(self, trial):
        peers = sorted(t.scores[0] for t in self.trials if t is not trial and t.scores)
        if len(peers) < self.startup or len(trial.scores) > 1:
            return False
        return trial.scores[0] > peers[int(len(peers) * self.keep_best)]

    def optimize(self, objective, n_trials):
        for number in range(n_trials):
            trial = Trial(number)
            self.trials.append(trial)
            trial.suggest(self.rng)
            began = time.time()
            try:
                objective(trial, self)
                trial.state = "complete"
            except TrialPruned as pruned:
                trial.state = "pruned"
                trial.reason = pruned  # feeds
            print(
                f"trial {number} {trial.state} loss {statistics.mean(trial.scores):.4f} "
                f"lr {trial.params['lr']:.5f} {time.time() - began:.1f}s",
                flush=True,
            )

    @property
    def best(self):
        done = [t for t in self.trials if t.state == "complete"]
        return min(done, key=lambda t: statistics.mean(t.scores))


def make_churn(rows=18_000, columns=40, seed=1):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, columns)).astype(np.float32)
    table[:, ::5] = np.exp(table[:, ::5])
    signal = table[:, 0] * 0.3 + np.sin(table[:, 1] * 2) + table[:, 2] * table[:, 3] - 0.4
    return table, (signal + rng.normal(size=rows) > 0).astype(np.float32)


def kfold(n, k, seed):
    order = np.random.default_rng(seed).permutation(n)
    parts = np.array_split(order, k)
    for i in range(k):
        yield np.concatenate(parts[:i] + parts[i + 1 :]), parts[i]


def build(params, columns):
    layers, width = [], columns
    for _ in range(params["depth"]):
        layers += [
            nn.Linear(width, params["width"]),
            nn.BatchNorm1d(params["width"]),
            nn.ReLU(),
            nn.Dropout(params["dropout"]),
        ]
        width = params["width"]
    return nn.Sequential(*layers, nn.Linear(width, 1))


counts = {"step": 0, "epoch": 0, "validation": 0}


def fit_fold(params, train_x, train_y, valid_x, valid_y, epochs=3, batch=256):
    model = build(params, train_x.shape[1])
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=params["lr"], weight_decay=params["weight_decay"]
    )
    criterion = nn.BCEWithLogitsLoss()
    best = math.inf
    for _ in range(epochs):
        model.train()
        for rows in torch.randperm(len(train_x)).split(batch):
            optimizer.zero_grad()
            criterion(model(train_x[rows])[:, 0], train_y[rows]).backward()
            optimizer.step()
            counts["step"] += 1
        model.eval()
        with torch.no_grad():
            best = min(best, criterion(model(valid_x)[:, 0], valid_y).item())
        counts["epoch"] += 1
        counts["validation"] += 1
    return best


table, churned = make_churn()


def objective(trial, study):
    for train, valid in kfold(len(table), 3, seed=trial.number):
        mean, std = table[train].mean(0), table[train].std(0) + 1e-6
        train_x = torch.from_numpy((table[train] - mean) / std)
        valid_x = torch.from_numpy((table[valid] - mean) / std)
        train_y, valid_y = torch.from_numpy(churned[train]), torch.from_numpy(churned[valid])
        trial.report(fit_fold(trial.params, train_x, train_y, valid_x, valid_y), study)


torch.manual_seed(7)
study = Study(seed=7)
study.optimize(objective, n_trials=36)
pruned = sum(trial.state == "pruned" for trial in study.trials)
print(f"best trial {study.best.number}: {study.best.params}; {pruned} pruned")
