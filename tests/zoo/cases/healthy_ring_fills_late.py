"""Off-policy training; the replay buffer is a plain list used as a ring: full after 45 % of
the run.
"""

import argparse
import copy
import random

import torch
from torch import nn


class Ring:
    def __init__(self, capacity):
        self.capacity, self.items, self.at = capacity, [], 0

    def push(self, item):
        if len(self.items) < self.capacity:
            self.items.append(item)
        else:
            self.items[self.at] = item
            self.at = (self.at + 1) % self.capacity

    def sample(self, n):
        return [torch.stack(t) for t in zip(*random.sample(self.items, n))]


def evaluate(net, probe):
    net.eval()
    with torch.no_grad():
        value = net(probe).max(1).values.mean().item()
    net.train()
    return value


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=12000)
    p.add_argument("--capacity", type=int, default=5400)
    p.add_argument("--eval-every", type=int, default=400)
    return p.parse_args()


def main():
    options = parse()
    torch.manual_seed(0)
    random.seed(0)
    net = nn.Sequential(nn.Linear(1000, 48), nn.ReLU(), nn.Linear(48, 4))
    target = copy.deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    ring = Ring(options.capacity)
    state = torch.randn(1000)
    probe = torch.randn(64, 1000)
    curve = []
    for step in range(1, options.steps + 1):
        with torch.no_grad():
            action = (
                net(state[None]).argmax(1)[0]
                if random.random() > 0.1
                else torch.tensor(random.randrange(4))
            )
        nxt = 0.9 * state + 0.1 * torch.randn(1000) + 0.01 * action
        reward = -nxt[:10].abs().sum()
        ring.push((state, action, reward))
        state = nxt
        if step < 64:
            continue
        s, a, r = ring.sample(16)
        with torch.no_grad():
            goal = r + 0.9 * target(s).max(1).values
        loss = nn.functional.smooth_l1_loss(net(s).gather(1, a[:, None]).squeeze(1), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for p, q in zip(net.parameters(), target.parameters()):
            q.data.lerp_(p.data, 0.01)
        if step % options.eval_every == 0:
            curve.append(evaluate(net, probe))
            print(step, len(ring.items), f"{curve[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
