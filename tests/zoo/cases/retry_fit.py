"""Regression on sensor shards, with non-finite guards, retries and an incident report."""

import functools
import random
import time
from dataclasses import dataclass

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(13)
random.seed(13)


class NonFiniteLoss(ArithmeticError):
    pass


class RetriesExhausted(RuntimeError):
    pass


@dataclass(slots=True)
class Incident:
    step: int
    attempt: int
    at: float
    error: Exception


def retrying(attempts, on):
    def wrap(method):
        @functools.wraps(method)
        def call(self, *args, **kwargs):
            for attempt in range(attempts):
                try:
                    return method(self, *args, clip=self.clips[attempt], **kwargs)
                except on as error:
                    self.incidents.append(
                        Incident(self.step, attempt, time.time(), error)
                    )  # feeds: INCIDENTS
            raise RetriesExhausted(f"step {self.step}: {attempts} attempts")

        return call

    return wrap


@dataclass
class SensorConfig:
    features: int = 96
    width: int = 256
    batch_size: int = 400
    shard_batches: int = 150
    shards: int = 9
    corrupt_from_shard: int = 3
    corrupt_share: float = 0.08
    lr: float = 1e-3


def read_shard(cfg, index, mixing):
    """Batches of one shard; later recorders drop a gain bit now and then."""
    for _ in range(cfg.shard_batches):
        x = torch.randn(cfg.batch_size, cfg.features)
        y = (x @ mixing).tanh().sum(1, keepdim=True) + 0.1 * torch.randn(cfg.batch_size, 1)
        if index >= cfg.corrupt_from_shard and random.random() < cfg.corrupt_share:
            rows = torch.randperm(cfg.batch_size)[:5]
            x[rows] = x[rows] * 1e30
        yield x, y


class SensorNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(cfg.features if i == 0 else cfg.width, cfg.width) for i in range(3)
        )
        self.out = nn.Linear(cfg.width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = nn.functional.gelu(layer(x))
        return self.out(x)


class Fitter:
    clips = (None, 100.0, 8.0)

    def __init__(self, cfg):
        self.cfg = cfg
        self.model = SensorNet(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.incidents: list[Incident] = []
        self.step = 0
        self.losses = []

    @retrying(attempts=3, on=NonFiniteLoss)
    def train_step(self, features, target, clip=None):
        x = features if clip is None else features.clamp(-clip, clip)
        prediction = self.model(x)
        loss = (prediction - target).square().mean()
        if not torch.isfinite(loss):
            raise NonFiniteLoss(f"loss {loss.item()} at step {self.step}, clip {clip}")
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        return loss.item()

    def fit(self, mixing):
        for shard in range(self.cfg.shards):
            before = len(self.incidents)
            total = 0.0
            for features, target in read_shard(self.cfg, shard, mixing):
                total += self.train_step(features, target)
                self.step += 1
            self.losses.append(total / self.cfg.shard_batches)
            print(
                f"shard {shard} loss {self.losses[-1]:.4f} "
                f"incidents {len(self.incidents) - before}",
                flush=True,
            )


cfg = SensorConfig()
fitter = Fitter(cfg)
fitter.fit(torch.randn(cfg.features, 12) / cfg.features**0.5)
