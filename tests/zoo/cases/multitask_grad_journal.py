"""Trains a shared trunk on three regression and classification tasks and watches how their gradients agree."""

import itertools
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

SKETCH = 256


class SensorRows(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        mix = torch.randn(48, 3, generator=torch.Generator().manual_seed(11))
        self.x = torch.randn(n, 48, generator=g)
        z = torch.tanh(self.x @ mix / 4)
        self.temp, self.load = z[:, 0], z[:, 1] + 0.1 * torch.randn(n, generator=g)
        self.fault = (z[:, 2] > 0.2).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], {"temp": self.temp[i], "load": self.load[i], "fault": self.fault[i]}


class Trunk(nn.Sequential):
    def __init__(self, width=160):
        super().__init__(
            nn.Linear(48, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 64),
            nn.GELU(),
        )


LOSSES = {
    "temp": lambda out, y: F.mse_loss(out[:, 0], y),
    "load": lambda out, y: F.smooth_l1_loss(out[:, 0], y),
    "fault": lambda out, y: F.cross_entropy(out, y),
}


def fresh_journal(tasks, blocks):
    return {
        "version": 2,
        "tasks": {
            t: {"weight": 1.0, "blocks": {b: {"shape": None, "sketch": {}} for b in blocks}}
            for t in tasks
        },
    }


def conflict(journal, step):
    """Mean cosine between the tasks' newest sketches."""
    tasks = journal["tasks"]
    vec = {
        t: torch.cat([b["sketch"][step] for b in d["blocks"].values()]) for t, d in tasks.items()
    }
    pairs = [
        F.cosine_similarity(vec[a], vec[b], dim=0).item() for a, b in itertools.combinations(vec, 2)
    ]
    return sum(pairs) / len(pairs)


def main(seconds=13.0, batch=64):
    torch.manual_seed(0)
    train = DataLoader(
        SensorRows(6400, 1), batch_size=batch, shuffle=True, num_workers=0, drop_last=True
    )
    held = SensorRows(1000, 2)
    trunk = Trunk()
    heads = nn.ModuleDict(
        {"temp": nn.Linear(64, 1), "load": nn.Linear(64, 1), "fault": nn.Linear(64, 2)}
    )
    opt = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=1e-3)
    named = dict(trunk.named_parameters())
    picks = {n: torch.randint(0, p.numel(), (SKETCH,)) for n, p in named.items()}
    journal = fresh_journal(LOSSES, named)
    step, epoch, end = 0, 0, time.monotonic() + seconds

    while time.monotonic() < end and epoch < 60:
        agree = 0.0
        for x, y in train:
            opt.zero_grad()
            features = trunk(x)
            for task, loss_fn in LOSSES.items():
                entry = journal["tasks"][task]
                loss = entry["weight"] * loss_fn(heads[task](features), y[task])
                wanted = [*named.values(), *heads[task].parameters()]
                grads = torch.autograd.grad(loss, wanted, retain_graph=True)
                for p, g in zip(wanted, grads):
                    p.grad = g if p.grad is None else p.grad + g
                for name, g in zip(named, grads):
                    block = entry["blocks"][name]
                    block["shape"] = tuple(g.shape)
                    block["sketch"][step] = g.flatten()[picks[name]]  # feeds
            opt.step()
            agree += conflict(journal, step)
            step += 1
        epoch += 1
        with torch.no_grad():
            f = trunk(held.x)
            scores = {t: LOSSES[t](heads[t](f), getattr(held, t)).item() for t in LOSSES}
        worst = max(scores, key=scores.get)
        for t, d in journal["tasks"].items():
            d["weight"] = 1.2 if t == worst else 1.0
        print(
            epoch,
            {k: round(v, 4) for k, v in scores.items()},
            f"agreement {agree / len(train):.3f}",
        )


if __name__ == "__main__":
    main()
