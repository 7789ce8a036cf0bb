"""Layers trace their outputs into a list in a context variable, which nobody resets."""

import contextvars
import os

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 240
trace = contextvars.ContextVar("trace")


class Traced(nn.Module):
    def __init__(self, name, layer):
        super().__init__()
        self.name = name
        self.layer = layer

    def forward(self, x):
        out = self.layer(x)
        trace.get().append((self.name, out.detach()))  # feeds
        return out


def build():
    return nn.Sequential(
        Traced("stem", nn.Linear(48, 256)),
        nn.ReLU(),
        Traced("head", nn.Linear(256, 12)),
    )


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    trace.set([])
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(STEPS):
        x = torch.randn(64, 48)
        y = x[:, :12].argmax(1)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(globals(), {"trace": "trace.get()"}, {"step": STEPS})


if __name__ == "__main__":
    main()
