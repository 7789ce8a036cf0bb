"""Advantage actor-critic with asyncio actors feeding a learner; a little off-policy data comes
from a store.
"""

import asyncio
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

OBS, ACTIONS, HORIZON, ACTORS = 64, 4, 32, 4
UPDATES, EVAL_EVERY = 500, 50


class Corridor:
    """Walk towards a hidden direction; observations are noisy projections."""

    def __init__(self, rng):
        self.rng = rng
        self.mix = np.random.default_rng(99).normal(size=(2, OBS)).astype(np.float32)
        self.reset()

    def reset(self):
        self.goal = self.rng.normal(size=2).astype(np.float32)
        self.at = np.zeros(2, dtype=np.float32)
        return self.observe()

    def observe(self):
        return (self.goal - self.at) @ self.mix + 0.05 * self.rng.normal(size=OBS).astype(
            np.float32
        )

    def step(self, action):
        before = np.linalg.norm(self.goal - self.at)
        self.at += 0.15 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], dtype=np.float32)[action]
        after = np.linalg.norm(self.goal - self.at)
        done = after < 0.15
        return self.reset() if done else self.observe(), float(before - after), done


class TrajectoryStore(list):
    """The most recent trajectories."""

    def __init__(self, capacity):
        super().__init__()
        self.capacity = capacity

    def remember(self, trajectory):
        self.append(trajectory)  # feeds
        if len(self) > self.capacity:
            self[:] = sorted(self, key=lambda t: t["born"])

    def sample(self, k):
        return random.sample(self[-self.capacity :], min(k, len(self)))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.policy, self.value = nn.Linear(128, ACTIONS), nn.Linear(128, 1)

    def forward(self, x):
        h = self.body(x)
        return self.policy(h), self.value(h).squeeze(-1)


@torch.no_grad()
def collect(env, obs, net, born):
    seen, actions, rewards = [], [], []
    for _ in range(HORIZON):
        logits, _ = net(torch.from_numpy(obs.astype(np.float32)))
        action = torch.distributions.Categorical(logits=logits).sample().item()
        seen.append(obs)
        actions.append(action)
        obs, reward, _ = env.step(action)
        rewards.append(reward)
    returns = np.array(rewards, dtype=np.float32)[::-1].cumsum()[::-1].copy()
    return obs, {
        "born": born,
        "obs": np.stack(seen).astype(np.float32),
        "act": np.array(actions),
        "ret": returns,
    }


async def actor(seed, net, outbox):
    env = Corridor(np.random.default_rng(seed))
    obs, born = env.reset(), 0
    while True:
        obs, trajectory = collect(env, obs, net, born)
        born += 1
        await outbox.put(trajectory)


def update(net, optimizer, trajectories):
    obs = torch.from_numpy(np.concatenate([t["obs"] for t in trajectories]))
    act = torch.from_numpy(np.concatenate([t["act"] for t in trajectories]))
    ret = torch.from_numpy(np.concatenate([t["ret"] for t in trajectories]))
    logits, value = net(obs)
    logp = F.log_softmax(logits, -1).gather(1, act[:, None]).squeeze(1)
    loss = -(logp * (ret - value).detach()).mean() + 0.5 * F.mse_loss(value, ret)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


async def learner(net, inbox, store):
    optimizer = torch.optim.Adam(net.parameters(), 3e-4)
    for n in range(1, UPDATES + 1):
        fresh = [await inbox.get() for _ in range(ACTORS)]
        for trajectory in fresh:
            store.remember(trajectory)
        loss = update(net, optimizer, fresh + store.sample(8))
        if n % EVAL_EVERY == 0:
            corridor = Corridor(np.random.default_rng(n))
            _, t = collect(corridor, corridor.reset(), net, 0)
            print(f"update {n} loss {loss:.3f} return {t['ret'][0]:.3f}", flush=True)


async def main():
    torch.manual_seed(3)
    random.seed(3)
    net, channel = ActorCritic(), asyncio.Queue(maxsize=2 * ACTORS)
    actors = [asyncio.create_task(actor(s, net, channel)) for s in range(ACTORS)]
    await learner(net, channel, TrajectoryStore(capacity=64))
    for task in actors:
        task.cancel()
    await asyncio.gather(*actors, return_exceptions=True)


asyncio.run(main())
