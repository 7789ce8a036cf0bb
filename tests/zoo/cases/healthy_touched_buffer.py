"""A replay buffer allocated at once, whose pages become resident only as it is written."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

CAPACITY = 40_000


class ReplayBuffer:
    def __init__(self, capacity, shape):
        self.observations = np.zeros((capacity, *shape), dtype=np.float32)
        self.rewards = np.zeros(capacity, dtype=np.float32)
        self.capacity, self.size, self.at = capacity, 0, 0

    def add(self, observations, rewards):
        where = (self.at + np.arange(len(rewards))) % self.capacity
        self.observations[where] = observations
        self.rewards[where] = rewards
        self.at = (self.at + len(rewards)) % self.capacity
        self.size = min(self.size + len(rewards), self.capacity)

    def sample(self, count, rng):
        chosen = rng.integers(0, self.size, count)
        return torch.from_numpy(self.observations[chosen]), torch.from_numpy(self.rewards[chosen])


def main():
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    buffer = ReplayBuffer(CAPACITY, (24, 24))
    critic = nn.Sequential(nn.Flatten(), nn.Linear(576, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for iteration in range(250):
        seen = rng.random((128, 24, 24), dtype=np.float32)
        buffer.add(seen, seen.mean((1, 2)))
        x, reward = buffer.sample(64, rng)
        loss = F.mse_loss(critic(x)[:, 0], reward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 50 == 0:
            print(f"iteration {iteration}: loss {loss.item():.4f}, {buffer.size} kept")


if __name__ == "__main__":
    main()
