"""DQN on an image-observation gridworld with a replay memory."""

import random
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
STEPS = 5000
MEMORY = 1500
SIZE = 48


class Grid:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.pos = [self.rng.randrange(12), self.rng.randrange(12)]
        self.goal = [self.rng.randrange(12), self.rng.randrange(12)]
        self.t = 0
        return self.render()

    def render(self):
        img = np.zeros((SIZE, SIZE), dtype=np.float32)
        for (r, c), v in ((self.pos, 1.0), (self.goal, 0.5)):
            img[r * 4 : r * 4 + 4, c * 4 : c * 4 + 4] = v
        return img

    def step(self, a):
        dr, dc = ((-1, 0), (1, 0), (0, -1), (0, 1))[a]
        before = self.dist()
        self.pos[0] = min(11, max(0, self.pos[0] + dr))
        self.pos[1] = min(11, max(0, self.pos[1] + dc))
        self.t += 1
        done = self.pos == self.goal or self.t >= 40
        return self.render(), float(before - self.dist()), done

    def dist(self):
        return abs(self.pos[0] - self.goal[0]) + abs(self.pos[1] - self.goal[1])


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 4, 4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * 144, 64),
            nn.ReLU(),
            nn.Linear(64, 4),
        )

    def forward(self, x):
        return self.net(x.unsqueeze(1))


class Agent:
    def __init__(self, rng):
        self.rng = rng
        self.q, self.target = QNet(), QNet()
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=5e-4)
        self.memory = deque(maxlen=MEMORY)

    def act(self, obs, eps):
        if self.rng.random() < eps:
            return self.rng.randrange(4)
        with torch.no_grad():
            return int(self.q(torch.from_numpy(obs).unsqueeze(0)).argmax())

    def learn(self):
        batch = self.rng.sample(self.memory, 16)
        s, a, r, s2, d = zip(*batch)
        s, s2 = torch.from_numpy(np.stack(s)), torch.from_numpy(np.stack(s2))
        with torch.no_grad():
            goal = torch.tensor(r) + 0.95 * self.target(s2).max(1).values * (
                1 - torch.tensor(d).float()
            )
        loss = nn.functional.smooth_l1_loss(
            self.q(s).gather(1, torch.tensor(a).unsqueeze(1)).squeeze(1), goal
        )
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    env, agent = Grid(rng), Agent(rng)
    obs, ret, avg = env.reset(), 0.0, 0.0
    start = time.time()
    for step in range(STEPS):
        action = agent.act(obs, max(0.1, 1 - step / 2500))
        nxt, reward, done = env.step(action)
        agent.memory.append((obs, action, reward, nxt, done))
        ret += reward
        obs = nxt
        if done:
            avg, ret, obs = 0.95 * avg + 0.05 * ret, 0.0, env.reset()
        if len(agent.memory) >= 200 and step % 2 == 0:
            agent.learn()
        if step % 250 == 0:
            agent.target.load_state_dict(agent.q.state_dict())
        if step % 500 == 0:
            print(f"step {step} avg return {avg:.2f} memory {len(agent.memory)}", flush=True)
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
