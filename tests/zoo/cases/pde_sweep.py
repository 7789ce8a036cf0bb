"""Random search over physics-informed nets for a Burgers-like equation; many short trainings in one process."""

import atexit
import json
import random
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn


@dataclass(frozen=True)
class Choice:
    number: int
    width: int
    depth: int
    lr: float
    boundary_weight: float
    activation: str


def sample_choice(number, rng):
    return Choice(
        number=number,
        width=rng.choice([96, 128, 160]),
        depth=rng.choice([3, 4]),
        lr=10 ** rng.uniform(-3.5, -2.3),
        boundary_weight=rng.choice([1.0, 5.0, 20.0]),
        activation=rng.choice(["tanh", "silu", "sin"]),
    )


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


def build(choice):
    make = {"tanh": nn.Tanh, "silu": nn.SiLU, "sin": Sine}[choice.activation]
    layers, inputs = [], 2
    for _ in range(choice.depth):
        layers += [nn.Linear(inputs, choice.width), make()]
        inputs = choice.width
    return nn.Sequential(*layers, nn.Linear(inputs, 1))


def residual(net, points, viscosity=0.02):
    points = points.requires_grad_(True)
    u = net(points)
    first = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
    u_x, u_t = first[:, :1], first[:, 1:]
    u_xx = torch.autograd.grad(u_x.sum(), points, create_graph=True)[0][:, :1]
    return u_t + u * u_x - viscosity * u_xx


class Trial:
    """One choice trained for a while; its record is on disk however the process ends."""

    POOL = 150_000

    def __init__(self, choice, folder):
        self.choice = choice
        self.path = Path(folder) / f"trial{choice.number:03d}.json"
        self.net = build(choice)
        self.pool = torch.rand(self.POOL, 2) * torch.tensor([2.0, 1.0]) - torch.tensor([1.0, 0.0])
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=choice.lr)
        self.losses = []
        self.written = False
        atexit.register(self.write)  # feeds

    def step(self, n=192, edge=96):
        inner = self.pool[torch.randint(self.POOL, (n,))]
        start = torch.rand(edge, 2) * torch.tensor([2.0, 0.0]) - torch.tensor([1.0, 0.0])
        walls = torch.rand(edge, 2)
        walls[:, 0] = walls[:, 0].round() * 2 - 1
        loss = residual(self.net, inner).pow(2).mean()
        fixed = (self.net(start) + torch.sin(torch.pi * start[:, :1])).pow(2).mean()
        fixed = fixed + self.net(walls).pow(2).mean()
        loss = loss + self.choice.boundary_weight * fixed
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        return self.losses[-1]

    def refresh_pool(self, fraction=0.25):
        """Put more points where the equation is violated most."""
        take = self.pool[torch.randint(self.POOL, (1024,))]
        worst = residual(self.net, take).detach().abs().squeeze(1).topk(128).indices
        near = take.detach()[worst].repeat(int(self.POOL * fraction) // 128, 1)
        near = near + torch.randn_like(near) * 0.02
        self.pool[torch.randperm(self.POOL)[: len(near)]] = near

    def write(self):
        if self.written:
            return
        self.path.write_text(json.dumps({**asdict(self.choice), "losses": self.losses}))
        self.written = True


class Search:
    def __init__(self, trials, steps, folder):
        self.trials, self.steps, self.folder = trials, steps, folder
        self.rng = random.Random(3)
        self.table = []

    def run(self):
        best = float("inf")
        for number in range(self.trials):
            began = time.perf_counter()
            torch.manual_seed(number)
            trial = Trial(sample_choice(number, self.rng), self.folder)
            for step in range(self.steps):
                loss = trial.step()
                if step and step % 20 == 0:
                    trial.refresh_pool()
                if loss != loss:
                    break
            trial.write()
            self.table.append((number, loss, time.perf_counter() - began))
            best = min(best, loss)
            if number % 5 == 0:
                print(f"trial {number} loss {loss:.4f} best {best:.4f}", flush=True)
        return sorted(self.table, key=lambda row: row[1])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="pde") as folder:
        search = Search(trials=30, steps=50, folder=folder)
        ranking = search.run()
        print("best three", ranking[:3])
