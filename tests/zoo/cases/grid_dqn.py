"""Deep Q-learning of a walker that collects coins on a grid which it sees as planes."""

import random
from collections import deque, namedtuple

import numpy as np
import torch
from torch import nn

Transition = namedtuple("Transition", "seen action reward following ended")
SIDE, PLANES, ACTIONS = 24, 4, 4


class Coins:
    """Planes: the walker, the coins, the walls, the way walked so far."""

    def __init__(self, rng, coins=10, longest=40):
        self.rng, self.coins, self.longest = rng, coins, longest
        self.walls = rng.random((SIDE, SIDE)) < 0.1

    def reset(self):
        self.planes = np.zeros((PLANES, SIDE, SIDE), dtype=np.float32)
        self.planes[2] = self.walls
        self.planes[1].flat[self.rng.choice(SIDE * SIDE, self.coins, replace=False)] = 1
        self.at, self.time = [SIDE // 2, SIDE // 2], 0
        self.planes[0, SIDE // 2, SIDE // 2] = 1
        return self.planes.copy()

    def step(self, action):
        self.planes[0][tuple(self.at)] = 0
        axis, move = action // 2, 1 if action % 2 else -1
        self.at[axis] = min(SIDE - 1, max(0, self.at[axis] + move))
        here, self.time = tuple(self.at), self.time + 1
        reward = float(self.planes[1][here]) - 0.2 * float(self.planes[2][here]) - 0.01
        self.planes[1][here], self.planes[0][here], self.planes[3][here] = 0, 1, 1
        return self.planes.copy(), reward, self.time >= self.longest


class Memory:
    def __init__(self, capacity=1_000_000):
        self.transitions = deque(maxlen=capacity)

    def push(self, *parts):
        self.transitions.append(Transition(*parts))

    def sample(self, count):
        picked = Transition(*zip(*random.sample(self.transitions, count), strict=True))
        stack = [torch.from_numpy(np.stack(part)) for part in (picked.seen, picked.following)]
        rest = [torch.tensor(part) for part in (picked.action, picked.reward, picked.ended)]
        return *stack, *rest

    def __len__(self):
        return len(self.transitions)


def network():
    return nn.Sequential(
        nn.Conv2d(PLANES, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 121, 96), nn.ReLU(), nn.Linear(96, ACTIONS),
    )  # fmt: skip


def learn(online, target, memory, optimizer, discount=0.97):
    seen, following, action, reward, ended = memory.sample(12)
    with torch.no_grad():
        wanted = reward + discount * target(following).max(-1).values * ~ended
    value = online(seen).gather(1, action[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(value, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main(episodes=60, learn_after=200, every=2):
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    world, memory = Coins(np.random.default_rng(0)), Memory()
    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=5e-4)
    moves = 0
    for episode in range(1, episodes + 1):
        seen, ended, total, loss = world.reset(), False, 0.0, 0.0
        while not ended:
            moves += 1
            if random.random() < max(0.1, 1 - moves / 1500):
                action = random.randrange(ACTIONS)
            else:
                with torch.no_grad():
                    action = int(online(torch.from_numpy(seen)[None]).argmax())
            following, reward, ended = world.step(action)
            memory.push(seen, action, reward, following, ended)
            seen, total = following, total + reward
            if len(memory) >= learn_after and moves % every == 0:
                loss = learn(online, target, memory, optimizer)
        if episode % 5 == 0:
            target.load_state_dict(online.state_dict())
            print(f"episode {episode}: reward {total:.2f}, loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
