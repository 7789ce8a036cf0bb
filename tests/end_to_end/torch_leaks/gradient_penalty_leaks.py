"""A critic whose gradient penalty is watched at every step and trained on at every fourth."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6
LAZY = 4


class CriticTrainer:
    def __init__(self, critic):
        self.critic = critic
        self.optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
        self.steps = 0
        self.penalties = []

    def penalty(self, real, fake):
        mix = torch.rand(len(real), 1)
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        score = self.critic(between).sum()
        (slope,) = torch.autograd.grad(score, between, create_graph=True)
        return ((slope.norm(dim=1) - 1) ** 2).mean()

    def step(self, real):
        fake = torch.rand_like(real)
        loss = self.critic(fake).mean() - self.critic(real).mean()
        penalty = self.penalty(real, fake)
        if self.steps % LAZY == 0:
            loss = loss + 10 * LAZY * penalty
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.penalties.append(penalty)
        self.steps += 1


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    critic = nn.Sequential(nn.Linear(512, 512), nn.Softplus(), nn.Linear(512, 1))
    data = TensorDataset(torch.rand(640, 512))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    trainer = CriticTrainer(critic)
    for epoch in range(EPOCHS):
        for (real,) in loader:
            trainer.step(real)
        print(f"epoch {epoch}: penalty {trainer.penalties[-1].item():.4f}")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        tell(locals(), "trainer.penalties", "critic, data", {"step": EPOCHS * len(loader)})


if __name__ == "__main__":
    main()
