"""A run object like those of tracking services: what is logged is kept row by row, pictures too.

After https://github.com/wandb/wandb/issues/354.
"""

import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class Run:
    current = None

    def __init__(self, project, config):
        self.project = project
        self.config = dict(config)
        self.summary = {}
        self._rows = []

    def log(self, row, step=None):
        self._rows.append({"_step": step, **row})  # feeds
        self.summary.update({k: v for k, v in row.items() if isinstance(v, float)})


def init(**what):
    Run.current = Run(**what)
    return Run.current


def log(row, step=None):
    Run.current.log(row, step)


def picture(x, out):
    pair = torch.cat([x[:4], out[:4].detach()], 1).reshape(-1, 32)
    return (pair.clamp(0, 1) * 255).byte().numpy()


def main(config):
    torch.manual_seed(config["seed"])
    torch.set_num_threads(1)
    init(project="denoising", config=config)
    model = nn.Sequential(nn.Linear(1024, 96), nn.ReLU(), nn.Linear(96, 1024))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    loader = DataLoader(TensorDataset(torch.rand(640, 1024)), batch_size=16, shuffle=True)
    step = 0
    for epoch in range(EPOCHS):
        for (x,) in loader:
            out = model(x + 0.1 * torch.randn_like(x))
            loss = F.mse_loss(out, x)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            log({"loss": loss.item(), "image": picture(x, out), "out": out.detach().numpy()}, step)
            step += 1
        print(f"epoch {epoch}: {np.round(Run.current.summary['loss'], 4)}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(globals(), {"rows": "Run.current._rows"}, {"step": step, "epoch": EPOCHS})


if __name__ == "__main__":
    main({"lr": 1e-3, "seed": 7})
