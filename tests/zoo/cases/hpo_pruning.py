"""Random search over a sequence tagger, with median pruning, all in one process."""

import math
import random
import statistics
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
VOCAB, TAGS, LENGTH = 400, 8, 20


class TrialPruned(Exception):
    pass


class Diverged(Exception):
    pass


@dataclass
class Trial:
    number: int
    params: dict
    values: list = field(default_factory=list)
    state: str = "running"
    error: BaseException | None = None

    @property
    def score(self):
        return max(self.values, default=0.0)


class Study:
    def __init__(self, seed, warmup_trials=3, warmup_epochs=1):
        self.rng = random.Random(seed)
        self.warmup_trials, self.warmup_epochs = warmup_trials, warmup_epochs
        self.trials = []

    def sample(self):
        return {
            "lr": 10 ** self.rng.uniform(-4.2, -0.8),
            "hidden": self.rng.choice([48, 64, 96]),
            "dropout": self.rng.uniform(0.0, 0.5),
            "batch": self.rng.choice([32, 64]),
        }

    def report(self, trial, value):
        trial.values.append(value)
        epoch = len(trial.values)
        peers = [
            t.values[epoch - 1] for t in self.trials if t is not trial and len(t.values) >= epoch
        ]
        is_warm = len(peers) >= self.warmup_trials and epoch > self.warmup_epochs
        if is_warm and value < statistics.median(peers):
            raise TrialPruned(f"{value:.3f} below the median at epoch {epoch}")

    def optimize(self, objective, n_trials):
        for number in range(n_trials):
            trial = Trial(number, self.sample())
            self.trials.append(trial)
            try:
                objective(self, trial)
                trial.state = "complete"
            except (TrialPruned, Diverged) as exc:
                trial.state = type(exc).__name__
                trial.error = exc
            print(
                f"trial {number:02d} {trial.state:12s} score {trial.score:.3f} {trial.error or ''}",
                flush=True,
            )

    @property
    def best(self):
        return max(self.trials, key=lambda t: t.score)


class Tagger(nn.Module):
    def __init__(self, hidden, dropout):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 64)
        self.rnn = nn.GRU(64, hidden, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(2 * hidden, TAGS)

    def forward(self, tokens):
        h, _ = self.rnn(self.drop(self.embed(tokens)))
        return self.out(self.drop(h))


def corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCAB, (n, LENGTH), generator=g)
    previous = torch.roll(tokens, 1, dims=1)
    return tokens, (tokens % 4) + 4 * ((previous // 7) % 2)


def accuracy(model, tokens, tags):
    model.eval()
    with torch.no_grad():
        return (model(tokens).argmax(-1) == tags).float().mean().item()


def objective(study, trial, epochs=3):
    torch.manual_seed(1000 + trial.number)
    tokens, tags = TRAIN
    model = Tagger(trial.params["hidden"], trial.params["dropout"])
    optimizer = torch.optim.Adam(model.parameters(), lr=trial.params["lr"])
    for epoch in range(epochs):
        model.train()
        for idx in torch.randperm(len(tokens)).split(trial.params["batch"]):
            loss = F.cross_entropy(model(tokens[idx]).flatten(0, 1), tags[idx].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not math.isfinite(loss.item()) or loss.item() > 4 * math.log(TAGS):
                raise Diverged(f"loss {loss.item():.2f}")
        study.report(trial, accuracy(model, *VALID))


TRAIN, VALID = corpus(640, 1), corpus(192, 2)

if __name__ == "__main__":
    study = Study(seed=4)
    study.optimize(objective, n_trials=20)
    states = [t.state for t in study.trials]
    print({s: states.count(s) for s in sorted(set(states))}, "best", study.best.params)
