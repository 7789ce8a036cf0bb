"""REINFORCE on a pole that draws its frames; every tenth episode is recorded as a clip."""

import math
import random

import numpy as np
import torch
import torch.nn as nn


class Pole:
    def __init__(self):
        self.reset()

    def reset(self):
        self.x, self.v, self.a, self.w, self.t = 0.0, 0.0, random.uniform(-0.05, 0.05), 0.0, 0
        return self.observe()

    def observe(self):
        return torch.tensor([self.x, self.v, self.a, self.w])

    def step(self, action):
        force = 1.0 if action else -1.0
        self.w += 0.05 * (9.8 * math.sin(self.a) - force * math.cos(self.a))
        self.a += 0.05 * self.w
        self.v += 0.05 * force
        self.x += 0.05 * self.v
        self.t += 1
        done = self.t >= 40
        return self.observe(), 1.0 - abs(self.a) / 3.2, done

    def render(self):
        frame = np.zeros((64, 64, 3), np.uint8)
        column = int(32 + 10 * math.sin(self.a)) % 64
        frame[:, column] = 255
        return frame


class ClipRecorder:
    def __init__(self, every):
        self.every = every
        self.clips = {}
        self.current = None

    def begin(self, episode):
        self.current = [] if episode % self.every == 0 else None

    def frame(self, env):
        if self.current is not None:
            self.current.append(env.render())

    def finish(self, episode):
        if self.current is not None:
            self.clips[episode] = self.current  # feeds
            self.current = None


def main():
    torch.manual_seed(1)
    random.seed(1)
    env, recorder = Pole(), ClipRecorder(every=10)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for episode in range(1500):
        state, done = env.reset(), False
        recorder.begin(episode)
        log_probs, rewards = [], []
        while not done:
            choice = torch.distributions.Categorical(logits=policy(state))
            action = choice.sample()
            log_probs.append(choice.log_prob(action))
            state, reward, done = env.step(action.item())
            rewards.append(reward)
            recorder.frame(env)
        recorder.finish(episode)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        loss = -(torch.stack(log_probs) * (returns - returns.mean())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if episode % 50 == 0:
            print(f"episode {episode} return {sum(rewards):.1f}")


if __name__ == "__main__":
    main()
