"""DQN on a toy grid; replay is a bounded deque that is full after roughly the first half."""

import collections
import random

import torch
from torch import nn
from torch.nn import functional as F

CAPACITY, WARMUP, STEPS, BATCH = 9000, 200, 20_000, 48
GRID = 12

Transition = collections.namedtuple("Transition", "state action reward next_state done")


class GridWorld:
    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.me = [self.rng.randrange(GRID), self.rng.randrange(GRID)]
        self.goal = [self.rng.randrange(GRID), self.rng.randrange(GRID)]
        self.age = 0
        return self.picture()

    def picture(self):
        state = torch.zeros(2, GRID, GRID)
        state[0, self.me[0], self.me[1]] = 1
        state[1, self.goal[0], self.goal[1]] = 1
        return state.flatten()

    def step(self, action):
        dy, dx = ((1, 0), (-1, 0), (0, 1), (0, -1))[action]
        self.me = [min(max(self.me[0] + dy, 0), GRID - 1), min(max(self.me[1] + dx, 0), GRID - 1)]
        self.age += 1
        won = self.me == self.goal
        return self.picture(), 1.0 if won else -0.01, won or self.age > 60


class ReplayMemory:
    def __init__(self, capacity):
        self.transitions = collections.deque(maxlen=capacity)

    def push(self, *fields):
        self.transitions.append(Transition(*fields))

    def sample(self, n):
        states, actions, rewards, nexts, dones = zip(
            *(random.choice(self.transitions) for _ in range(n))
        )
        return (
            torch.stack(states),
            torch.tensor(actions),
            torch.tensor(rewards),
            torch.stack(nexts),
            torch.tensor(dones),
        )


class Agent:
    def __init__(self):
        make = lambda: nn.Sequential(nn.Linear(2 * GRID * GRID, 128), nn.ReLU(), nn.Linear(128, 4))
        self.online, self.target = make(), make()
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), 5e-4)
        self.memory = ReplayMemory(CAPACITY)

    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(4)
        with torch.no_grad():
            return self.online(state).argmax().item()

    def learn(self):
        s, a, r, n, d = self.memory.sample(BATCH)
        with torch.no_grad():
            goal = r + 0.97 * self.target(n).max(1).values * (~d)
        loss = F.smooth_l1_loss(self.online(s).gather(1, a[:, None]).squeeze(1), goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def evaluate(agent, episodes=8):
    env, won = GridWorld(random.Random(0)), 0
    for _ in range(episodes):
        state, done, reward = env.reset(), False, 0.0
        while not done:
            state, reward, done = env.step(agent.act(state, 0.02))
        won += reward > 0
    return won / episodes


def main():
    random.seed(5)
    torch.manual_seed(5)
    agent, env = Agent(), GridWorld(random.Random(1))
    state, returns = env.reset(), []
    for step in range(STEPS):
        action = agent.act(state, max(0.05, 1 - step / 5000))
        after, reward, done = env.step(action)
        agent.memory.push(state, action, reward, after, done)
        state = env.reset() if done else after
        if step > WARMUP and step % 4 == 0:
            agent.learn()
        if step % 500 == 0:
            agent.target.load_state_dict(agent.online.state_dict())
        if step % 2000 == 1999:
            returns.append(evaluate(agent))
            print(
                f"step {step + 1} won {returns[-1]:.2f} memory {len(agent.memory.transitions)}",
                flush=True,
            )


main()
