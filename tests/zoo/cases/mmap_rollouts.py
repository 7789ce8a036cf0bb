"""Learns to land a probe by PPO; a forked simulator writes each rollout into shared memory."""

import mmap
import multiprocessing

import numpy as np
import torch
from torch import nn

UPDATES, PROBES, LENGTH, FEATURES, ACTIONS = 110, 64, 64, 6, 4
FRAME = (LENGTH, PROBES, FEATURES + 3)


class Probes:
    """Probes that fall towards a pad and may fire one of three engines."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.state = self.fresh(PROBES)

    def fresh(self, count):
        state = self.random.normal(0, 0.3, (count, FEATURES)).astype(np.float32)
        state[:, 1] += 2.0
        return state

    def move(self, action):
        push = np.array([[0, 0], [0, 0.09], [0.05, 0], [-0.05, 0]], np.float32)[action]
        self.state[:, 2:4] += push - np.array([0, 0.035], np.float32)
        self.state[:, :2] += 0.3 * self.state[:, 2:4]
        down = (self.state[:, 1] <= 0) | (np.abs(self.state[:, 0]) > 3)
        soft = np.abs(self.state[:, 2:4]).max(1) < 0.25
        reward = np.where(down, np.where(soft & (np.abs(self.state[:, 0]) < 1), 1.0, -1.0), 0.0)
        self.state[down] = self.fresh(int(down.sum()))
        return reward, down


class Policy(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.action, self.value = nn.Linear(width, ACTIONS), nn.Linear(width, 1)

    def forward(self, state):
        hidden = self.body(state)
        return torch.distributions.Categorical(logits=self.action(hidden)), self.value(hidden)[
            ..., 0
        ]


def simulate(policy, probes, block):
    """Play in a forked process, and leave what happened in the block."""
    frame = np.frombuffer(block, np.float32).reshape(FRAME)
    with torch.no_grad():
        for time in range(LENGTH):
            frame[time, :, :FEATURES] = probes.state
            action = policy(torch.from_numpy(probes.state))[0].sample().numpy()
            reward, down = probes.move(action)
            frame[time, :, FEATURES:] = np.stack([action, reward, down], 1)


class Arena:
    """Blocks that a simulator writes and the learner reads."""

    def __init__(self):
        self.blocks = {}

    def block(self, number):
        size = int(np.prod(FRAME)) * 4
        self.blocks[number] = mmap.mmap(-1, size)
        return self.blocks[number]


def learn(policy, optimizer, frame):
    state = frame[..., :FEATURES]
    action, reward, down = frame[..., FEATURES:].unbind(-1)
    with torch.no_grad():
        chances, value = policy(state)
        before = chances.log_prob(action)
        gain, following = torch.zeros(LENGTH, PROBES), torch.zeros(PROBES)
        for time in reversed(range(LENGTH - 1)):
            delta = reward[time] + 0.97 * value[time + 1] * (1 - down[time]) - value[time]
            following = gain[time] = delta + 0.92 * (1 - down[time]) * following
    for _ in range(3):
        chances, guess = policy(state)
        ratio = (chances.log_prob(action) - before).exp()
        push = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        loss = (guess - value - gain).square().mean() - push - 0.01 * chances.entropy().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return reward.mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    fork = multiprocessing.get_context("fork")
    policy, arena = Policy(), Arena()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for update in range(UPDATES):
        block = arena.block(update)
        player = fork.Process(target=simulate, args=(policy, Probes(update), block))
        player.start()
        player.join()
        frame = torch.frombuffer(block, dtype=torch.float32).view(FRAME)
        mean = learn(policy, optimizer, frame)
        if update % 10 == 9:
            print(f"update {update + 1}: reward {mean:.4f}", flush=True)


if __name__ == "__main__":
    main()
