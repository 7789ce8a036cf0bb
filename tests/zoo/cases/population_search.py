"""Population based training of small classifiers in one process."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F

GENERATIONS, MEMBERS, STEPS, BATCH, CLASSES = 10, 6, 64, 128, 32


def note_confidence(member, logits, every=1, _traces={}):
    """Calibration trace of a member; returns its mean confidence so far."""
    trace = _traces.setdefault(member, {"count": 0, "sum": 0.0, "probs": []})
    probs = logits.detach().softmax(-1)
    trace["count"] += 1
    trace["sum"] += probs.max(-1).values.mean().item()
    if trace["count"] % every == 0:
        trace["probs"].append(probs)  # feeds: traces
    return trace["sum"] / trace["count"]


@dataclass
class Hyper:
    lr: float
    weight_decay: float
    dropout: float

    def perturbed(self, rng):
        f = rng.choice((0.8, 1.25))
        return Hyper(
            self.lr * f, self.weight_decay * rng.choice((0.8, 1.25)), min(0.5, self.dropout * f)
        )


@dataclass
class Member:
    ident: int
    hyper: Hyper
    model: nn.Module
    optimizer: torch.optim.Optimizer
    score: float = 0.0

    @classmethod
    def fresh(cls, ident, rng):
        hyper = Hyper(
            10 ** rng.uniform(-3.5, -2), 10 ** rng.uniform(-5, -2), rng.uniform(0.05, 0.4)
        )
        model = nn.Sequential(
            nn.Linear(64, 160),
            nn.ReLU(),
            nn.Dropout(hyper.dropout),
            nn.Linear(160, 160),
            nn.ReLU(),
            nn.Linear(160, CLASSES),
        )
        return cls(
            ident,
            hyper,
            model,
            torch.optim.AdamW(model.parameters(), hyper.lr, weight_decay=hyper.weight_decay),
        )


@dataclass
class Study:
    seed: int = 0
    lineage: dict[int, dict[int, dict]] = field(default_factory=dict)

    def archive(self, generation, member):
        self.lineage.setdefault(generation, {})[member.ident] = {  # feeds: lineage
            "score": member.score,
            "hyper": member.hyper,
            "weights": copy.deepcopy(member.model.state_dict()),
            "optimizer": copy.deepcopy(member.optimizer.state_dict()),
        }


def make_data(seed):
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, 64, generator=g)
    y = torch.randint(CLASSES, (6000,), generator=g)
    x = centres[y] + 1.3 * torch.randn(6000, 64, generator=g)
    return (x[:5000], y[:5000]), (x[5000:], y[5000:])


def train_member(member, x, y):
    member.model.train()
    for _ in range(STEPS):
        rows = torch.randint(len(x), (BATCH,))
        logits = member.model(x[rows])
        loss = F.cross_entropy(logits, y[rows])
        member.optimizer.zero_grad()
        loss.backward()
        member.optimizer.step()
        confidence = note_confidence(member.ident, logits)
    return confidence


@torch.no_grad()
def evaluate(member, x, y):
    member.model.eval()
    return (member.model(x).argmax(1) == y).float().mean().item()


def exploit(population, rng):
    ranked = sorted(population, key=lambda m: m.score)
    for loser, winner in zip(ranked[:2], ranked[-2:]):
        loser.model.load_state_dict(winner.model.state_dict())
        loser.hyper = winner.hyper.perturbed(rng)
        for group in loser.optimizer.param_groups:
            group["lr"], group["weight_decay"] = loser.hyper.lr, loser.hyper.weight_decay


def main():
    rng = random.Random(6)
    torch.manual_seed(6)
    train, val = make_data(6)
    study = Study(seed=6)
    population = [Member.fresh(i, rng) for i in range(MEMBERS)]
    for generation in range(GENERATIONS):
        for member in population:
            confidence = train_member(member, *train)
            member.score = evaluate(member, *val)
            study.archive(generation, member)
        exploit(population, rng)
        best = max(population, key=lambda m: m.score)
        print(
            f"generation {generation}: best {best.score:.3f} "
            f"lr {best.hyper.lr:.5f} conf {confidence:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
