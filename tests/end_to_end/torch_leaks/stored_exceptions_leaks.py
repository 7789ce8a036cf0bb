"""Bad batches are skipped, and the errors are kept for a summary at the end."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


def training_step(model, x, y):
    features = x.repeat(1, 32)
    logits = model(features)
    if not torch.isfinite(logits).all():
        raise ValueError(f"{int((~torch.isfinite(x)).sum())} values of the batch are not finite")
    return F.cross_entropy(logits, y)


def fit(model, loader, optimizer):
    skipped = []
    for epoch in range(EPOCHS):
        total = 0.0
        for x, y in loader:
            try:
                loss = training_step(model, x, y)
            except ValueError as error:
                skipped.append(error)
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}, {len(skipped)} batches skipped")
    return skipped


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64 * 32, 128), nn.ReLU(), nn.Linear(128, 10))
    x = torch.rand(640, 64)
    x[::96] = float("nan")
    data = TensorDataset(x, torch.randint(0, 10, (640,)))
    loader = DataLoader(data, batch_size=32)
    skipped = fit(model, loader, torch.optim.SGD(model.parameters(), lr=0.05))
    for error in skipped[:3]:
        print(error)

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        done = {"step": EPOCHS * len(loader) - len(skipped), "epoch": EPOCHS}
        tell(locals(), "skipped", "model, data", done)


if __name__ == "__main__":
    main()
