"""Tabular regression with gradient accumulation. Logging is configured by dictConfig; details
go to a buffer.
"""

import logging
import logging.config
import math

import torch
from torch import nn

logging.config.dictConfig(
    {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(name)s %(message)s"}},
        "handlers": {
            "console": {"class": "logging.StreamHandler", "formatter": "plain", "level": "INFO"},
            "details": {
                "class": "logging.handlers.MemoryHandler",
                "capacity": 1_000_000,
                "level": "DEBUG",
            },
        },
        "loggers": {
            "tabular": {"level": "INFO", "handlers": ["console"], "propagate": False},
            "tabular.grad": {"level": "DEBUG", "handlers": ["details"], "propagate": False},
        },
    }
)
log = logging.getLogger("tabular")
grad_log = logging.getLogger("tabular.grad")

FEATURES, HIDDEN = 40, 256
ACCUMULATE = 4


class ResidualMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(FEATURES, HIDDEN)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.SiLU())
            for _ in range(3)
        )
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x).squeeze(-1)


def synthetic_table(rows, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, FEATURES, generator=g)
    y = x[:, 0] * x[:, 1] + torch.sin(x[:, 2] * 2) + 0.1 * torch.randn(rows, generator=g)
    return x, y


class GradientAccumulator:
    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every
        self.seen = 0
        self.updates = 0

    def backward(self, loss):
        (loss / self.every).backward()
        self.seen += 1
        if self.seen % self.every == 0:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.updates += 1
            grad_log.debug(  # feeds
                "update %d norm %.4f first layer %s",
                self.updates,
                norm.item(),
                self.model.inp.weight.grad,
            )
            self.optimizer.step()
            self.optimizer.zero_grad()


def fit(epochs=10, batch=96):
    torch.manual_seed(4)
    x, y = synthetic_table(42_240, 1)
    vx, vy = synthetic_table(4_800, 2)
    model = ResidualMLP()
    optimizer = torch.optim.Adam(model.parameters(), lr=7e-4)
    accumulator = GradientAccumulator(model, optimizer, ACCUMULATE)
    for epoch in range(epochs):
        model.train()
        order = torch.randperm(len(x))
        for rows in order.split(batch):
            accumulator.backward(nn.functional.mse_loss(model(x[rows]), y[rows]))
        model.eval()
        with torch.no_grad():
            mse = (
                sum(
                    nn.functional.mse_loss(model(a), b).item()
                    for a, b in zip(vx.split(480), vy.split(480))
                )
                / 10
            )
        log.info("epoch %d rmse %.4f after %d updates", epoch, math.sqrt(mse), accumulator.updates)


if __name__ == "__main__":
    fit()
