"""Warm restarts: every cycle has an optimizer and a scheduler of its own, and the last go."""

import gc

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def cycle(model, loader, length):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=length // 5)
    cool = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cool], [length // 5])
    losses = []
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(50, 400), nn.ReLU(), nn.Linear(400, 400), nn.Linear(400, 8))
    data = TensorDataset(torch.randn(1000, 50), torch.randint(0, 8, (1000,)))
    loader = DataLoader(data, batch_size=25, shuffle=True)
    for number in range(8):
        print(f"cycle {number}: loss {cycle(model, loader, len(loader)):.4f}")
        if number % 4 == 3:
            gc.collect()


if __name__ == "__main__":
    main()
