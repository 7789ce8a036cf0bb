"""Trains a forecaster in stages; from the fourth on each stage averages its weights."""

import math

import torch
from torch import nn

STAGES, STEPS, BATCH, PAST, AHEAD, AVERAGE_FROM = 14, 60, 48, 96, 24, 4


class Load:
    """Electric load of some households: days, weeks and weather."""

    def __init__(self, seed, homes=64, hours=24 * 200):
        random = torch.Generator().manual_seed(seed)
        hour = torch.arange(hours).float()
        day = torch.sin(2 * math.pi * (hour / 24 + torch.rand(homes, 1, generator=random)))
        week = torch.cos(2 * math.pi * hour / 168)
        drift = torch.randn(homes, hours, generator=random).cumsum(1) * 0.02
        self.series = (day + 0.4 * week + drift) + 0.2 * torch.randn(homes, hours, generator=random)
        self.random = random

    def batch(self, until):
        homes = torch.randint(len(self.series), (BATCH,), generator=self.random)
        starts = torch.randint(until - PAST - AHEAD, (BATCH,), generator=self.random)
        places = starts[:, None] + torch.arange(PAST + AHEAD)
        windows = self.series[homes[:, None], places]
        return windows[:, :PAST], windows[:, PAST:]


class Forecaster(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.inner = nn.GRU(8, width, batch_first=True)
        self.out = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, AHEAD))

    def forward(self, past):
        level = past.mean(1, keepdim=True)
        _, last = self.inner((past - level).view(len(past), -1, 8))
        return self.out(last[0]) + level


def average_from_here(optimizer, model):
    """Average the weights over the steps of a stage, and return the averages."""
    averages = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    count = 0

    def update(*_):
        nonlocal count
        count += 1
        for name, weight in model.named_parameters():
            averages[name].lerp_(weight.detach(), 1 / count)

    optimizer.register_step_post_hook(update)
    return averages


def train_stage(model, optimizer, load, until):
    total = 0.0
    for _ in range(STEPS):
        past, future = load.batch(until)
        loss = nn.functional.smooth_l1_loss(model(past), future)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total / STEPS


@torch.no_grad()
def error_of(model, weights, load, hours):
    past, future = load.batch(hours)
    return (torch.func.functional_call(model, weights, (past,)) - future).abs().mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    load, model = Load(0), Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    hours = load.series.shape[1]
    for stage in range(STAGES):
        until = hours // 4 + hours * 3 // 4 * stage // STAGES
        averages = None
        if stage >= AVERAGE_FROM:
            averages = average_from_here(optimizer, model)
        loss = train_stage(model, optimizer, load, until)
        weights = averages or dict(model.named_parameters())
        print(
            f"stage {stage}: {loss:.4f}, error {error_of(model, weights, load, hours):.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
