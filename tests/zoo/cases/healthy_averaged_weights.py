"""DDPM on two-dimensional shapes with EMA weights and SWA in the last epochs; samples are
collected per epoch.
"""

import copy
import math

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Schedule:
    def __init__(self, steps=200):
        self.steps = steps
        beta = torch.linspace(1e-4, 0.04, steps)
        self.alpha_bar = torch.cumprod(1 - beta, 0)
        self.beta = beta


class NoisePredictor(nn.Module):
    def __init__(self, dim=256, hidden=256):
        super().__init__()
        # sinusoidal table for all times and a large codebook that never changes
        freq = torch.exp(torch.linspace(0, -8, 32))
        table = torch.arange(200)[:, None] * freq[None]
        self.register_buffer("times", torch.cat([table.sin(), table.cos()], 1))
        self.register_buffer("codebook", torch.randn(20_000, 128))
        self.net = nn.Sequential(
            nn.Linear(dim + 64, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU()
        )
        self.out = nn.Linear(hidden, dim)

    def forward(self, x, t):
        return self.out(self.net(torch.cat([x, self.times[t]], 1)))


def shapes(n):
    axis = torch.linspace(-1, 1, 16)
    angle = torch.rand(n, 1, 1) * math.pi
    return torch.tanh(
        8 * (axis[None, :, None] * angle.cos() + axis[None, None] * angle.sin())
    ).flatten(1)


class DiffusionRun:
    def __init__(self):
        self.schedule = Schedule()
        self.model = NoisePredictor()
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.995))
        self.swa = None
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.samples, self.trajectory = [], []
        self.curve = []

    def train_epoch(self, steps=140, batch=64):
        self.model.train()
        self.samples.clear()
        for _ in range(steps):
            x = shapes(batch)
            t = torch.randint(self.schedule.steps, (batch,))
            a = self.schedule.alpha_bar[t, None]
            noise = torch.randn_like(x)
            loss = (self.model(a.sqrt() * x + (1 - a).sqrt() * noise, t) - noise).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.ema.update_parameters(self.model)
            self.curve.append(loss.item())

    @torch.no_grad()
    def sample(self, n):
        self.trajectory = []
        x = torch.randn(n, 256)
        for t in reversed(range(self.schedule.steps)):
            beta, a = self.schedule.beta[t], self.schedule.alpha_bar[t]
            eps = self.ema(x, torch.full((n,), t))
            x = (x - beta / (1 - a).sqrt() * eps) / (1 - beta).sqrt()
            if t:
                x = x + beta.sqrt() * torch.randn_like(x)
            if t % 10 == 0:
                self.trajectory.append(x.clone())
        return x

    def validate(self):
        self.model.eval()
        for _ in range(3):
            self.samples.append(self.sample(96))
        return torch.cat(self.samples).abs().mean().item()

    def average(self):
        if self.swa is None:
            self.swa = AveragedModel(copy.deepcopy(self.model))
        self.swa.update_parameters(self.model)


def main(epochs=11):
    torch.manual_seed(31)
    run = DiffusionRun()
    for epoch in range(epochs):
        run.train_epoch()
        if epoch >= 7:
            run.average()
        score = run.validate()
        print(
            f"epoch {epoch} loss {sum(run.curve[-140:]) / 140:.4f} "
            f"saturation {score:.3f} kept {len(run.samples)}",
            flush=True,
        )


main()
