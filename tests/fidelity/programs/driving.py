"""A small training with all that leakscope listens to, and what it leaves for a comparison."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Hook = Callable[[nn.Module, torch.Tensor], object]


def nothing(model: nn.Module, x: torch.Tensor) -> None:
    """Do nothing."""


def seed() -> None:
    """Begin with the same random numbers."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def train(
    *, in_step: Hook = nothing, in_epoch: Hook = nothing, epochs: int = 3, steps: int = 4
) -> nn.Module:
    """Train; ``in_step`` is called before each step, ``in_epoch`` with the model evaluating."""
    seed()
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(steps * 8, 16)), batch_size=8, shuffle=True)
    for _ in range(epochs):
        model.train()
        for (x,) in loader:
            in_step(model, x)
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
        model.eval()
        in_epoch(model, torch.ones(8, 16))
    tell(model)
    return model


def tell(model: nn.Module | None = None) -> None:
    """Print what was learnt and the state of every source of random numbers."""
    if model is not None:
        learnt = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        print("learnt", hashlib.sha256(learnt).hexdigest()[:16])
    states = (random.getstate(), np.random.get_state(), torch.get_rng_state().tolist())
    print("random", hashlib.sha256(repr(states).encode()).hexdigest()[:16])
