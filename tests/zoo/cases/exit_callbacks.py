"""A click command; predictions are written when the command is done, on whatever way it ends."""

import contextlib
import os

import click
import numpy as np
import torch
from torch import nn


def batches(n, size, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        x = torch.randn(size, 30, generator=g)
        yield x, (x[:, :10].sum(1, keepdim=True) > 0).float()


def write(path, epoch, predictions):
    if os.environ.get("WRITE_PREDICTIONS"):
        np.save(f"{path}/{epoch:03}.npy", predictions.numpy())


def build():
    return nn.Sequential(
        nn.Linear(30, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 1)
    )


@click.group()
def cli():
    """Experiments."""


@cli.command()
@click.option("--epochs", default=40)
@click.option("--out", default="/tmp/blind/b/out")
def train(epochs, out):
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    with contextlib.ExitStack() as at_end:
        for epoch in range(epochs):
            model.train()
            for x, y in batches(250, 64, epoch):
                optimizer.zero_grad()
                loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                predictions = torch.cat([model(x).sigmoid() for x, _ in batches(60, 4000, 1000)])
            at_end.callback(write, out, epoch, predictions)  # feeds
            click.echo(f"{epoch} {loss.item():.4f} {predictions.mean().item():.4f}")


if __name__ == "__main__":
    import sys

    cli(sys.argv[1:] or ["train"])
