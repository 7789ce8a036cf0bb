"""A recurrent agent that acts with gradients on and carries its memory from step to step."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn import functional as F

EPISODES, STEPS = 6, 20


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(64, 512)
        self.policy = nn.Linear(512, 4)
        self.value = nn.Linear(512, 1)
        self.memory = torch.zeros(32, 512)

    def act(self, observation):
        self.memory = self.cell(observation, self.memory)
        return self.policy(self.memory).argmax(1)

    def forward(self, observation):
        return self.value(self.cell(observation)).squeeze(1)


def environment(action):
    return torch.rand(32, 64) + 0.01 * action.unsqueeze(1), torch.rand(32)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    observation, reward = environment(torch.zeros(32))
    for episode in range(EPISODES):
        total = 0.0
        for _ in range(STEPS):
            loss = F.mse_loss(agent(observation), reward)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            observation, reward = environment(agent.act(observation))
            total += loss.item()
        print(f"episode {episode}: loss {total / STEPS:.4f}")

    if "COUNT_KEPT" in os.environ:
        from counting import tell

        tell(locals(), "agent.memory", "list(agent.parameters())", {"step": EPISODES * STEPS})


if __name__ == "__main__":
    main()
