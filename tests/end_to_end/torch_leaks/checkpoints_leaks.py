"""A copy of the weights is kept in memory after every epoch."""

from __future__ import annotations

import copy
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.snapshots = []
        self.best_loss = float("inf")

    def train_epoch(self, loader):
        self.model.train()
        for x, y in loader:
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        losses = [F.cross_entropy(self.model(x), y).item() for x, y in loader]
        return sum(losses) / len(losses)

    def fit(self, train_loader, val_loader):
        for epoch in range(EPOCHS):
            self.train_epoch(train_loader)
            loss = self.evaluate(val_loader)
            self.best_loss = min(loss, self.best_loss)
            self.snapshots.append(copy.deepcopy(self.model.state_dict()))
            print(f"epoch {epoch}: loss {loss:.3f}, best {self.best_loss:.3f}")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 10))
    data = TensorDataset(torch.rand(320, 64), torch.randint(0, 10, (320,)))
    train_loader = DataLoader(data, batch_size=32, shuffle=True)
    val_loader = DataLoader(TensorDataset(*data[:128]), batch_size=32)
    trainer = Trainer(model)
    trainer.fit(train_loader, val_loader)

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        tell(locals(), "trainer.snapshots", "model, data", {"epoch": EPOCHS})


if __name__ == "__main__":
    main()
