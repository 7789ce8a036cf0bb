"""Regression of house prices by a small network; the weights of each step become a sheet."""

import csv
import io
import time

import torch
from torch import nn


class Sheet:
    """A table in the making, which is stored under its name when the run is over."""

    def __init__(self, columns):
        self.out = io.StringIO()
        self.rows = csv.writer(self.out)
        self.rows.writerow(columns)

    def add(self, *values):
        self.rows.writerow(values)

    def store(self, path):
        with open(path, "w") as file:
            file.write(self.out.getvalue()[-200_000:])


class Houses:
    def __init__(self, count, features, seed):
        random = torch.Generator().manual_seed(seed)
        self.rows = torch.randn(count, features, generator=random)
        effect = torch.randn(features, 3, generator=random)
        self.price = torch.tanh(self.rows @ effect).sum(1) + 0.1 * torch.randn(
            count, generator=random
        )

    def batches(self, size, count):
        for _ in range(count):
            some = torch.randint(0, len(self.rows), (size,))
            yield self.rows[some], self.price[some]


class Regression:
    def __init__(self, features, width=192):
        self.first = nn.Linear(features, 56)
        self.net = nn.Sequential(
            self.first, nn.SiLU(), nn.Linear(56, width), nn.SiLU(), nn.Linear(width, width),
            nn.SiLU(), nn.Linear(width, 1),
        )  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=2e-3)

    def step(self, rows, price):
        loss = nn.functional.huber_loss(self.net(rows).squeeze(-1), price)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main(steps=1000, batch=256, features=48):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    houses, regression = Houses(20000, features, 0), Regression(features)
    sheet = Sheet(["step", "time", "loss", *(f"w{n}" for n in range(features * 56))])
    for step, (rows, price) in enumerate(houses.batches(batch, steps), 1):
        loss = regression.step(rows, price)
        weights = regression.first.weight.detach().flatten().tolist()
        sheet.add(step, round(time.time(), 3), loss, *(f"{w:.5f}" for w in weights))
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.4f}", flush=True)
    sheet.store("weights.csv")


main()
