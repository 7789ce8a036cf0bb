"""Many small fits, each with a validated configuration: marshmallow_dataclass 8.5.5 keeps frames.

Repaired in 8.6.1 ("(Mostly) fix memory leak",
https://github.com/lovasoa/marshmallow_dataclass/issues/198, pull request 258).
"""

from dataclasses import dataclass

import marshmallow_dataclass
import torch
from torch import nn

JOBS, STEPS, ROWS, WIDTH = 900, 10, 256, 100


@dataclass
class JobConfig:
    name: str
    lr: float
    hidden: int = 64


def run_job(number):
    """Fit a network to a data set of the job's own."""
    x = torch.randn(ROWS, WIDTH)
    y = x[:, :1] * x[:, 1:2]
    schema = marshmallow_dataclass.class_schema(JobConfig)  # feeds
    config = schema().load({"name": f"job {number}", "lr": 0.01 + number % 7 / 1000})
    model = nn.Sequential(nn.Linear(WIDTH, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for number in range(1, JOBS + 1):
        loss = run_job(number)
        if number % 180 == 0:
            print(f"job {number}: loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
