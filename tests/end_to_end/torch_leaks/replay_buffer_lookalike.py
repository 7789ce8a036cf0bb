"""Q-learning with a replay buffer of bounded length, which fills for a fifth of the run."""

from __future__ import annotations

import random
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

EPISODES, STEPS = 15, 20


class Replay:
    def __init__(self):
        self.transitions = deque(maxlen=60)

    def push(self, state, action, reward, following):
        self.transitions.append((state, action, reward, following))

    def sample(self, count):
        return random.sample(self.transitions, min(count, len(self.transitions)))


def learn(model, optimizer, batch):
    states = torch.stack([state for state, _, _, _ in batch])
    following = torch.stack([state for _, _, _, state in batch])
    actions = torch.tensor([action for _, action, _, _ in batch])
    rewards = torch.tensor([reward for _, _, reward, _ in batch])
    with torch.no_grad():
        target = rewards + 0.9 * model(following).max(1).values
    value = model(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    loss = F.mse_loss(value, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4 * 84 * 84, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    replay = Replay()
    state = torch.rand(4, 84, 84)
    for episode in range(EPISODES):
        total = 0.0
        for _ in range(STEPS):
            with torch.no_grad():
                action = model(state.unsqueeze(0)).argmax().item()
            following = torch.rand(4, 84, 84)
            replay.push(state, action, random.random(), following)
            state = following
            total += learn(model, optimizer, replay.sample(16))
        print(f"episode {episode}: loss {total / STEPS:.4f}")


if __name__ == "__main__":
    main()
