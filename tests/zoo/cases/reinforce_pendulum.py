"""REINFORCE with baseline on a small hand-written pendulum environment."""

import math
import random
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
EPISODES = 260
HORIZON = 60


class Pendulum:
    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.theta = self.rng.uniform(-math.pi, math.pi)
        self.vel = self.rng.uniform(-1, 1)
        self.t = 0
        return self.obs()

    def obs(self):
        base = [math.cos(self.theta), math.sin(self.theta), self.vel / 8]
        return np.array([*base, self.t / HORIZON], dtype=np.float32)

    def step(self, torque):
        torque = max(-2.0, min(2.0, torque))
        cost = (((self.theta + math.pi) % (2 * math.pi)) - math.pi) ** 2 + 0.1 * self.vel**2
        self.vel += (15.0 * math.sin(self.theta) + 3.0 * torque) * 0.05
        self.vel = max(-8.0, min(8.0, self.vel))
        self.theta += self.vel * 0.05
        self.t += 1
        return self.obs(), -cost, self.t >= HORIZON


class Policy(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh()
        )
        self.mu = nn.Linear(hidden, 1)
        self.value = nn.Linear(hidden, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        h = self.body(x)
        return self.mu(h), self.value(h)


def watch_saturation(policy, n_bins=128):
    """Histogram of the hidden activations of one episode; returns the reader."""
    layer = policy.body[3]
    histogram = torch.zeros(layer_width(policy), n_bins)
    calls = 0

    def hook(module, args, output):
        nonlocal calls
        if calls >= HORIZON:
            return
        calls += 1
        row = output.detach().reshape(-1)
        bins = ((row + 1) * 0.5 * (n_bins - 1)).long()
        histogram[torch.arange(len(row)), bins] += 1

    layer.register_forward_hook(hook)

    def saturated():
        edge = histogram[:, :4].sum() + histogram[:, -4:].sum()
        return (edge / histogram.sum().clamp(min=1)).item()

    return saturated


def layer_width(policy):
    return policy.body[2].out_features


def run_episode(env, policy):
    obs, done = env.reset(), False
    logps, values, rewards = [], [], []
    while not done:
        mu, value = policy(torch.from_numpy(obs))
        dist = torch.distributions.Normal(mu, policy.log_std.exp())
        action = dist.sample()
        obs, reward, done = env.step(action.item())
        logps.append(dist.log_prob(action).sum())
        values.append(value.squeeze())
        rewards.append(reward)
    return torch.stack(logps), torch.stack(values), rewards


def main():
    random.seed(0)
    torch.manual_seed(0)
    env = Pendulum(random.Random(1))
    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=3e-4)
    start = time.time()
    avg = None
    for episode in range(EPISODES):
        saturated = watch_saturation(policy)
        logps, values, rewards = run_episode(env, policy)
        returns, g = [], 0.0
        for r in reversed(rewards):
            g = r + 0.98 * g
            returns.append(g)
        returns = torch.tensor(returns[::-1]) / 100
        adv = returns - values.detach()
        loss = -(logps * adv).mean() + 0.5 * (returns - values).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        total = sum(rewards)
        avg = total if avg is None else 0.95 * avg + 0.05 * total
        if episode % 26 == 0:
            print(f"episode {episode} avg return {avg:.1f} saturated {saturated():.3f}", flush=True)
    print(f"finished in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
