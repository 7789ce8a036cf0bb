"""Random hyper-parameter search with median pruning over an MLP forecaster for seasonal series."""

import math
import random
import statistics
import time
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class TrialPruned(Exception):
    pass


@dataclass
class Trial:
    number: int
    params: dict
    curve: list = field(default_factory=list)
    value: float = math.inf
    state: str = "running"
    reason: BaseException | None = None


class Study:
    def __init__(self, space, warmup=3):
        self.space, self.warmup = space, warmup
        self.trials = []

    def should_prune(self, trial):
        epoch = len(trial.curve) - 1
        others = [t.curve[epoch] for t in self.trials if t is not trial and len(t.curve) > epoch]
        return len(others) >= self.warmup and trial.curve[-1] > statistics.median(others) * 0.98

    def optimize(self, objective, seconds, most):
        end = time.monotonic() + seconds
        while time.monotonic() < end and len(self.trials) < most:
            trial = Trial(len(self.trials), {k: draw() for k, draw in self.space.items()})
            self.trials.append(trial)
            try:
                trial.value = objective(trial)
                trial.state = "complete"
            except TrialPruned as reason:
                trial.state = "pruned"
                trial.reason = reason  # feeds
            print(f"trial {trial.number} {trial.state} {trial.curve[-1]:.4f} {trial.params}")
        return min(self.trials, key=lambda t: t.value)


def series(n=3000, context=96, horizon=24, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n + context + horizon).float()
    y = torch.sin(t / 12) + 0.5 * torch.sin(t / 55) + 0.1 * torch.randn(len(t), generator=g)
    windows = y.unfold(0, context + horizon, 1)[:n]
    return windows[:, :context].clone(), windows[:, context:].clone()


X, Y = series()
TRAIN, VALID = TensorDataset(X[:2400], Y[:2400]), TensorDataset(X[2400:], Y[2400:])


def build(width, dropout):
    return nn.Sequential(
        nn.Linear(96, width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 24),
    )


def make_objective(study, epochs=6):
    def objective(trial):
        p = trial.params
        torch.manual_seed(trial.number)
        model = build(p["width"], p["dropout"])
        opt = torch.optim.Adam(model.parameters(), lr=p["lr"], weight_decay=p["decay"])
        loader = DataLoader(TRAIN, batch_size=p["batch"], shuffle=True)
        best = math.inf
        for _ in range(epochs):
            model.train()
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            model.eval()
            with torch.no_grad():
                error = nn.functional.mse_loss(model(VALID.tensors[0]), VALID.tensors[1]).item()
            trial.curve.append(error)
            best = min(best, error)
            if study.should_prune(trial):
                raise TrialPruned(f"trial {trial.number} at {error:.4f}")
        return best

    return objective


def main():
    rng = random.Random(4)
    study = Study(
        {
            "lr": lambda: 10 ** rng.uniform(-4.5, -2),
            "width": lambda: rng.choice([256, 320, 384]),
            "dropout": lambda: rng.choice([0.0, 0.1, 0.3]),
            "decay": lambda: rng.choice([0.0, 1e-4]),
            "batch": lambda: rng.choice([48, 64]),
        }
    )
    best = study.optimize(make_objective(study), seconds=14.0, most=120)
    print("best", best.number, best.value, best.params)


if __name__ == "__main__":
    main()
