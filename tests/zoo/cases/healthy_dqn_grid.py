"""Double DQN on a small gridworld with moving hazards; uniform replay, periodic greedy evaluation."""

import collections
import json
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE = 12
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
Transition = collections.namedtuple("Transition", "state action reward next_state done")


class HazardGrid:
    def __init__(self, seed, horizon=50):
        self.rng = random.Random(seed)
        self.horizon = horizon

    def reset(self):
        cells = [(r, c) for r in range(SIZE) for c in range(SIZE)]
        self.agent, self.goal, *self.hazards = self.rng.sample(cells, 6)
        self.t = 0
        return self.observe()

    def observe(self):
        planes = torch.zeros(3, SIZE, SIZE)
        planes[0][self.agent] = 1
        planes[1][self.goal] = 1
        for h in self.hazards:
            planes[2][h] = 1
        return planes

    def _shift(self, cell, move):
        return tuple(min(SIZE - 1, max(0, a + b)) for a, b in zip(cell, move))

    def distance(self):
        return sum(abs(a - b) for a, b in zip(self.agent, self.goal))

    def step(self, action):
        before = self.distance()
        self.agent = self._shift(self.agent, MOVES[action])
        self.hazards = [self._shift(h, self.rng.choice(MOVES)) for h in self.hazards]
        self.t += 1
        if self.agent in self.hazards:
            return self.observe(), -1.0, True
        if self.agent == self.goal:
            return self.observe(), 1.0, True
        return self.observe(), 0.1 * (before - self.distance()), self.t >= self.horizon


class ReplayBuffer:
    def __init__(self, capacity, seed):
        self.storage = collections.deque(maxlen=capacity)
        self.rng = random.Random(seed)

    def push(self, *items):
        self.storage.append(Transition(*items))

    def sample(self, n):
        picked = Transition(
            *zip(*(self.storage[self.rng.randrange(len(self.storage))] for _ in range(n)))
        )
        return (
            torch.stack(picked.state),
            torch.tensor(picked.action),
            torch.tensor(picked.reward),
            torch.stack(picked.next_state),
            torch.tensor(picked.done, dtype=torch.float32),
        )

    def __len__(self):
        return len(self.storage)


class EpisodeLog:
    """Buffers whole trajectories and writes them out in blocks."""

    def __init__(self, path, block=150):
        self.path, self.block, self.pending = path, block, []

    def add(self, trajectory, ret):
        self.pending.append({"return": ret, "path": trajectory})
        if len(self.pending) >= self.block:
            self.flush()

    def flush(self):
        with open(self.path, "w") as fh:
            json.dump(self.pending, fh)
        self.pending.clear()


def q_network():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * SIZE * SIZE, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, len(MOVES)),
    )


def learn(online, target, optimizer, batch, gamma=0.97):
    state, action, reward, nxt, done = batch
    with torch.no_grad():
        best = online(nxt).argmax(1, keepdim=True)
        goal = reward + gamma * (1 - done) * target(nxt).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(online(state).gather(1, action[:, None]).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def greedy_return(online, seed, episodes=12):
    env, total = HazardGrid(seed), 0.0
    for _ in range(episodes):
        obs, done = env.reset(), False
        while not done:
            obs, reward, done = env.step(online(obs[None]).argmax().item())
            total += reward
    return total / episodes


def train(workdir, total_steps=26000, warmup=500, learn_every=4, sync_every=500, eval_every=2000):
    env, rng = HazardGrid(1), random.Random(2)
    online, target = q_network(), q_network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=5e-4)
    replay = ReplayBuffer(14000, seed=3)
    log = EpisodeLog(os.path.join(workdir, "episodes.json"))
    obs, trajectory, ret = env.reset(), [], 0.0
    for step in range(1, total_steps + 1):
        eps = max(0.05, 1 - step / 12000)
        if rng.random() < eps:
            action = rng.randrange(len(MOVES))
        else:
            with torch.no_grad():
                action = online(obs[None]).argmax().item()
        nxt, reward, done = env.step(action)
        replay.push(obs, action, reward, nxt, float(done))
        trajectory.append([*env.agent, action, reward])
        ret += reward
        obs = nxt
        if done:
            log.add(trajectory, ret)
            obs, trajectory, ret = env.reset(), [], 0.0
        if step > warmup and step % learn_every == 0:
            loss = learn(online, target, optimizer, replay.sample(32))
        if step % sync_every == 0:
            target.load_state_dict(online.state_dict())
        if step % eval_every == 0:
            score = greedy_return(online, seed=1000 + step)
            print(
                f"step {step} eps {eps:.2f} loss {loss:.4f} replay {len(replay)} eval {score:+.3f}",
                flush=True,
            )
    log.flush()


if __name__ == "__main__":
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory() as tmp:
        train(tmp)
