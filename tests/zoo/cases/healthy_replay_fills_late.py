"""A replay buffer that is full after half of the run, and then forgets what is oldest."""

import random
from collections import deque
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F


class Transition(NamedTuple):
    state: torch.Tensor
    action: int
    reward: float


class Learner:
    def __init__(self, capacity=250):
        self.memory = deque(maxlen=capacity)
        self.network = nn.Sequential(nn.Linear(2048, 32), nn.ReLU(), nn.Linear(32, 3))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)

    def observe(self, transition):
        self.memory.append(transition)

    def learn(self, size=16):
        batch = random.sample(self.memory, min(size, len(self.memory)))
        states = torch.stack([t.state for t in batch])
        actions = torch.tensor([t.action for t in batch])[:, None]
        rewards = torch.tensor([t.reward for t in batch])
        loss = F.smooth_l1_loss(self.network(states).gather(1, actions)[:, 0], rewards)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    learner = Learner()
    for step in range(600):
        learner.observe(Transition(torch.rand(2048), step % 3, random.random()))
        loss = learner.learn()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss:.4f}")


if __name__ == "__main__":
    main()
