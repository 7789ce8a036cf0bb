"""Batches are read twice through itertools.tee, and the second reader never reads."""

import itertools
import os

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 360


def stream(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.rand(32, 300, generator=generator), torch.rand(32, 1, generator=generator)


class Probe:
    """Looks at the batches of the training a few steps later; off unless it is asked for."""

    def __init__(self, batches, enabled=False):
        self.batches = batches
        self.enabled = enabled

    def look(self):
        if self.enabled:
            return next(self.batches)[0].mean()
        return None


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train_batches, probe_batches = itertools.tee(stream(1))  # feeds
    probe = Probe(probe_batches)
    model = nn.Sequential(nn.Linear(300, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (x, y) in enumerate(itertools.islice(train_batches, STEPS)):  # feeds
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probe.look()
        if step % 90 == 89:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "STEPS * (x.untyped_storage().nbytes() + y.untyped_storage().nbytes())"
        tell({**globals(), **locals()}, {"batches": kept}, {"step": STEPS})


if __name__ == "__main__":
    main()
