"""A small training as people write them; tells what it learnt, to the last bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(
    epochs: int = 4, batches: int = 8, at_step: Callable[[int], object] = lambda step: None
) -> None:
    """Train, keep every loss, and print a digest of the weights; ``at_step`` comes after each."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(batches * 16, 8), torch.randn(batches * 16, 1))
    model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = []
    step = 0
    for _ in range(epochs):
        model.train()
        for inputs, wanted in DataLoader(data, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), wanted)
            loss.backward()
            optimizer.step()
            kept.append((loss.detach(), torch.zeros(2000)))
            at_step(step)
            step += 1
        model.eval()
        with torch.no_grad():
            for inputs, _ in DataLoader(data, batch_size=32):
                model(inputs)
    reported = hashlib.sha256()
    for parameter in model.parameters():
        reported.update(parameter.detach().numpy().tobytes())
    print("result", reported.hexdigest(), len(kept), flush=True)
