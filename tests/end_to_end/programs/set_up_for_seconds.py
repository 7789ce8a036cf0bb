import asyncio  # noqa: F401
import functools  # noqa: F401
import sys  # noqa: F401
import threading  # noqa: F401
import time

import torch
from torch import nn


class Trainer:
    def __init__(self, wait=4.0):
        begun, self.table = time.time(), []
        while time.time() - begun < wait:
            self.table = [i * i for i in range(20000)]
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.history = []

    def fit(self, epochs=6, steps=60):
        for _ in range(epochs * steps):
            x, y = torch.randn(32, 64), torch.randint(0, 8, (32,))
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.history.append(x.repeat(4, 1).numpy().copy())
            time.sleep(0.008)
        return {"loss": loss.item()}
