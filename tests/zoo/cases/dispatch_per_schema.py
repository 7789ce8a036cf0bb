"""Tables of many columns, each with a row type of its own, encoded by dispatch and fitted."""

from dataclasses import astuple, make_dataclass
from functools import singledispatch

import numpy as np
import torch
from torch import nn

SHARDS, ROWS, COLUMNS, STEPS = 700, 64, 24, 4


@singledispatch
def encode(row):
    raise TypeError(f"no encoder for {type(row).__name__}")


def encoder(quantiles):
    """Return what turns a row into its ranks, as the quantiles of its table have them."""

    def encode_row(row):
        values = np.array(astuple(row), dtype=np.float32)
        ranks = [np.searchsorted(q, v) for q, v in zip(quantiles, values, strict=True)]
        return np.array(ranks, dtype=np.float32) / quantiles.shape[1]

    return encode_row


def read_shard(rng, number):
    """Return the rows of one table as objects."""
    names = [f"c{number}_{i}" for i in range(COLUMNS)]
    Row = make_dataclass("Row", names)  # noqa: N806
    table = rng.gamma(2.0, 1.0 + number % 5, size=(ROWS, COLUMNS)).astype(np.float32)
    grid = np.linspace(0, 1, 512)
    quantiles = np.quantile(table, grid, axis=0).T.astype(np.float32).copy()
    encode.register(Row, encoder(quantiles))  # feeds
    return [Row(*row) for row in table.tolist()], table.sum(1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(COLUMNS, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for shard in range(1, SHARDS + 1):
        rows, sums = read_shard(rng, shard)
        x = torch.from_numpy(np.stack([encode(row) for row in rows]))
        y = torch.from_numpy(np.log(sums))[:, None]
        for _ in range(STEPS):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if shard % 175 == 0:
            print(f"shard {shard}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
