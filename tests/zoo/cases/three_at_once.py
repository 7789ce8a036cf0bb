"""A reinforcement learner with three leaks of different size: frames, returns, log lines."""

import os
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

EPISODES, STEPS = 8, 40


class Environment:
    def __init__(self, seed=0):
        self.random = np.random.default_rng(seed)
        self.frames = []

    def step(self, action):
        frame = self.random.random((84, 84), dtype=np.float32)
        self.frames.append(frame)  # feeds: frames
        return frame, float(frame.mean()) + 0.01 * action


class Agent:
    def __init__(self):
        self.policy = nn.Sequential(nn.Linear(84 * 84, 64), nn.Tanh(), nn.Linear(64, 4))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-4)
        self.trace = SimpleNamespace(log_probs=[], embeddings=[])

    def act(self, frame):
        hidden = self.policy[1](self.policy[0](torch.from_numpy(frame).flatten()))
        distribution = torch.distributions.Categorical(logits=self.policy[2](hidden))
        action = distribution.sample()
        self.trace.embeddings.append(hidden.detach().repeat(32))  # feeds: embeddings
        return action.item(), distribution.log_prob(action)


replays = {}


def play(agent, environment, episode):
    frame, reward = environment.step(0)
    rewards, log_probs = [], []
    for _ in range(STEPS):
        action, log_prob = agent.act(frame)
        frame, reward = environment.step(action)
        loss = -log_prob * reward
        agent.optimizer.zero_grad()
        loss.backward()
        agent.optimizer.step()
        rewards.append(reward)
        log_probs.append(log_prob.item())
    replays[episode] = np.random.default_rng(episode).random(160_000)  # feeds: replays
    return sum(rewards)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    agent, environment = Agent(), Environment()
    for episode in range(EPISODES):
        print(f"episode {episode}: return {play(agent, environment, episode):.3f}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = {
            "frames": "environment.frames",
            "replays": "replays",
            "embeddings": "agent.trace.embeddings",
        }
        done = {"step": EPISODES * STEPS, "epoch": EPISODES}
        tell({**globals(), **locals()}, kept, done)


if __name__ == "__main__":
    main()
