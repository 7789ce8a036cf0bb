"""Soft actor critic on a point mass with a replay buffer of bounded length."""

import random
import time
from collections import deque

import torch
import torch.nn as nn


class ReplayBuffer:
    def __init__(self, capacity):
        self.storage = deque(maxlen=capacity)

    def add(self, *transition):
        self.storage.append(transition)

    def sample(self, size):
        return [torch.stack(column) for column in zip(*random.sample(self.storage, size))]


class PointMass:
    """Observation: a 48x42 occupancy grid as float32, flattened."""

    def reset(self):
        self.p = torch.rand(2)
        return self.observe()

    def observe(self):
        grid = torch.zeros(48, 42)
        grid[int(self.p[0].clamp(0, 0.99) * 48), int(self.p[1].clamp(0, 0.99) * 42)] = 1
        return grid.flatten()

    def step(self, action):
        self.p = (self.p + 0.05 * action).clamp(0, 1)
        return self.observe(), -((self.p - 0.5) ** 2).sum()


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))


def main():
    random.seed(0)
    torch.manual_seed(0)
    env, buffer = PointMass(), ReplayBuffer(4000)
    actor, critic = mlp(2016, 2), mlp(2018, 1)
    actor_opt = torch.optim.Adam(actor.parameters(), lr=3e-4)
    critic_opt = torch.optim.Adam(critic.parameters(), lr=3e-4)
    state = env.reset()
    for step in range(6200):
        with torch.no_grad():
            action = torch.tanh(actor(state)) + 0.1 * torch.randn(2)
        following, reward = env.step(action)
        buffer.add(state, action, reward, following)
        state = env.reset() if step % 50 == 49 else following
        if step >= 200 and step % 4 == 0:
            s, a, r, s2 = buffer.sample(32)
            with torch.no_grad():
                target = r.unsqueeze(1) + 0.98 * critic(torch.cat([s2, torch.tanh(actor(s2))], 1))
            critic_loss = nn.functional.mse_loss(critic(torch.cat([s, a], 1)), target)
            critic_opt.zero_grad()
            critic_loss.backward()
            critic_opt.step()
            actor_loss = -critic(torch.cat([s, torch.tanh(actor(s))], 1)).mean()
            actor_opt.zero_grad()
            actor_loss.backward()
            actor_opt.step()
            time.sleep(0.002)
        if step % 500 == 0:
            print("step", step, "stored", len(buffer.storage))


if __name__ == "__main__":
    main()
