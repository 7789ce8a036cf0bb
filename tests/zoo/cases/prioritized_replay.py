"""Prioritized replay whose position never wraps round: the dict of transitions has no end."""

import os
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class PrioritizedReplay:
    def __init__(self, capacity, alpha=0.6):
        self.capacity = capacity
        self.alpha = alpha
        self.storage = {}
        self.priorities = np.zeros(capacity, dtype=np.float32)
        self.position = 0

    def push(self, state, action, reward, after):
        self.storage[self.position] = (state, action, reward, after)  # feeds
        self.priorities[self.position % self.capacity] = self.priorities.max() or 1.0
        self.position += 1

    def sample(self, count):
        weights = self.priorities[: min(self.position, self.capacity)] ** self.alpha
        chosen = np.random.choice(len(weights), count, p=weights / weights.sum())
        return chosen, [self.storage[int(i)] for i in chosen]

    def update(self, chosen, errors):
        self.priorities[chosen] = errors + 1e-3


class Maze:
    def reset(self):
        self.left = 30
        return np.random.rand(3, 16, 16).astype(np.float32)

    def step(self, action):
        self.left -= 1
        after = np.random.rand(3, 16, 16).astype(np.float32)
        return after, float(after[action % 3].mean()), self.left == 0


def learn(net, target, memory, optimizer, gamma=0.97):
    chosen, batch = memory.sample(32)
    states, actions, rewards, after = (list(part) for part in zip(*batch, strict=True))
    q = net(torch.from_numpy(np.stack(states))).gather(1, torch.tensor(actions)[:, None])[:, 0]
    with torch.no_grad():
        best = target(torch.from_numpy(np.stack(after))).max(1).values
    wanted = torch.tensor(rewards) + gamma * best
    loss = F.smooth_l1_loss(q, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    memory.update(chosen, (q - wanted).abs().detach().numpy())
    return loss.item()


def main():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net, target = (
        nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), nn.Linear(64, 4))
        for _ in range(2)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    memory, env, steps = PrioritizedReplay(100), Maze(), 0
    for episode in range(24):
        state, done, score = env.reset(), False, 0.0
        while not done:
            if random.random() < 0.2:
                action = random.randrange(4)
            else:
                with torch.no_grad():
                    action = net(torch.from_numpy(state)[None]).argmax().item()
            after, reward, done = env.step(action)
            memory.push(state, action, reward, after)
            state, score = after, score + reward
            if memory.position >= 32:
                learn(net, target, memory, optimizer)
                steps += 1
        target.load_state_dict(net.state_dict())
        if episode % 6 == 0:
            print(f"episode {episode}: score {score:.2f}, {memory.position} moves")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(locals(), {"storage": "memory.storage"}, {"step": steps})


if __name__ == "__main__":
    main()
