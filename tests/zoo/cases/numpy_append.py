"""Validation scores in one numpy array that is made longer each time."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8
scores = np.empty((0, 200), dtype=np.float32)


def evaluate(model, loader):
    global scores
    model.eval()
    with torch.no_grad():
        for x, _ in loader:
            scores = np.append(scores, model(x).numpy(), axis=0)  # feeds
    return scores[-100:].mean()


def train(model, loader, optimizer):
    model.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 200))
    data = TensorDataset(torch.rand(1500, 20), torch.randint(0, 200, (1500,)))
    train_loader = DataLoader(data, batch_size=30, shuffle=True)
    val_loader = DataLoader(data, batch_size=150)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        loss = train(model, train_loader, optimizer)
        print(f"epoch {epoch}: loss {loss:.3f}, score {evaluate(model, val_loader):.4f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(globals(), {"scores": "scores"}, {"validation": EPOCHS, "epoch": EPOCHS})


if __name__ == "__main__":
    main()
