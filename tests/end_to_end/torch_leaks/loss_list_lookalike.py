"""A second loss that is only watched, kept as a number at every step."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


class Trainer:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.drifts = []

    def train_step(self, x, y):
        logits = self.model(x)
        loss = F.cross_entropy(logits, y)
        drift = F.mse_loss(self.model(x + 0.01 * torch.randn_like(x)), logits.detach())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.drifts.append(drift.item())
        return loss.item()

    def fit(self, epochs):
        for epoch in range(epochs):
            losses = [self.train_step(x, y) for x, y in self.loader]
            recent = self.drifts[-len(losses) :]
            mean = sum(losses) / len(losses)
            print(f"epoch {epoch}: loss {mean:.3f}, drift {float(sum(recent)) / len(recent):.5f}")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))
    data = TensorDataset(torch.rand(640, 256), torch.randint(0, 10, (640,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    trainer = Trainer(model, loader)
    trainer.fit(EPOCHS)


if __name__ == "__main__":
    main()
