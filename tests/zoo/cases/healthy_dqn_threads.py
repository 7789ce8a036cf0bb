"""DQN on a warehouse picker simulator, with threaded actors."""

import copy
import heapq
import itertools
import random
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

GRID, PLANES, ACTIONS = 12, 4, 5
CAPACITY = 6000
ACTORS = 2
ROUNDS = 130
KEEP_BEST = 4


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(PLANES, 8, 3, padding=1)
        self.fc = nn.Linear(8 * GRID * GRID, 64)
        self.out = nn.Linear(64, ACTIONS)

    def forward(self, x):
        return self.out(F.relu(self.fc(F.relu(self.conv(x)).flatten(1))))


class Warehouse:
    MOVES = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.reset()

    def reset(self):
        self.shelves = {(self.rng.randrange(GRID), self.rng.randrange(GRID)) for _ in range(18)}
        self.pos = (0, 0)
        self.trail = deque(maxlen=8)
        self._place()
        return self.observe()

    def _place(self):
        self.goal = (self.rng.randrange(GRID), self.rng.randrange(GRID))
        self.shelves.discard(self.goal)

    def observe(self):
        obs = torch.zeros(PLANES, GRID, GRID)
        obs[0][self.pos] = obs[1][self.goal] = 1.0
        for cell in self.shelves:
            obs[2][cell] = 1.0
        for age, cell in enumerate(self.trail):
            obs[3][cell] = age / 8
        return obs

    def step(self, action):
        dx, dy = self.MOVES[action]
        x, y = self.pos[0] + dx, self.pos[1] + dy
        reward = -0.02
        if 0 <= x < GRID and 0 <= y < GRID and (x, y) not in self.shelves:
            self.trail.append(self.pos)
            self.pos = (x, y)
        if self.pos == self.goal:
            reward = 1.0
            self._place()
        return self.observe(), reward


class Actor:
    def __init__(self, seed):
        self.env = Warehouse(seed)
        self.rng = random.Random(seed + 1)
        self.obs = self.env.reset()

    @torch.no_grad()
    def collect(self, net, epsilon, n=40):
        batch, total = [], 0.0
        for _ in range(n):
            if self.rng.random() < epsilon:
                action = self.rng.randrange(ACTIONS)
            else:
                action = int(net(self.obs.unsqueeze(0)).argmax())
            after, reward = self.env.step(action)
            batch.append((self.obs, action, reward, after))
            self.obs = after
            total += reward
        return batch, total


class Replay:
    def __init__(self, capacity):
        self.capacity = capacity
        self.items = []
        self.cursor = 0

    def extend(self, batch):
        for item in batch:
            if len(self.items) < self.capacity:
                self.items.append(item)
            else:
                self.items[self.cursor] = item
                self.cursor = (self.cursor + 1) % self.capacity

    def sample(self, rng, n):
        obs, act, rew, nxt = zip(*rng.choices(self.items, k=n))
        return torch.stack(obs), torch.tensor(act), torch.tensor(rew), torch.stack(nxt)


def train():
    torch.manual_seed(1)
    rng, order = random.Random(1), itertools.count()
    net = QNet()
    target = copy.deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    replay, champions, recent = Replay(CAPACITY), [], deque(maxlen=100)
    actors = [Actor(seed) for seed in range(ACTORS)]
    with ThreadPoolExecutor(ACTORS, thread_name_prefix="actor") as pool:
        for n in range(ROUNDS):
            began = time.monotonic()
            epsilon = max(0.1, 1 - n / 100)
            jobs = [pool.submit(actor.collect, net, epsilon) for actor in actors]
            score = 0.0
            for job in jobs:
                batch, total = job.result()
                replay.extend(batch)
                score += total
            recent.append(score)
            for _ in range(3):
                obs, act, rew, nxt = replay.sample(rng, 32)
                with torch.no_grad():
                    goal = rew + 0.95 * target(nxt).amax(1)
                loss = F.smooth_l1_loss(net(obs).gather(1, act[:, None]).squeeze(1), goal)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if n % 5 == 4:
                target = copy.deepcopy(net)
                entry = (sum(recent) / len(recent), next(order), copy.deepcopy(net.state_dict()))
                if len(champions) < KEEP_BEST:
                    heapq.heappush(champions, entry)
                else:
                    heapq.heappushpop(champions, entry)
            if n % 40 == 39:
                print(
                    f"round {n + 1} reward {sum(recent) / len(recent):.2f} loss {loss.item():.4f}"
                )
            time.sleep(max(0.0, 0.13 - (time.monotonic() - began)))
    print("best", round(max(champions)[0], 3))


if __name__ == "__main__":
    train()
