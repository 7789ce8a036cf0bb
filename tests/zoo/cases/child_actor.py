"""A learner and one actor process that talk through queues; the actor remembers its episodes
for statistics.
"""

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn

OBS, HORIZON = 64, 128


class Actor:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.weight = np.zeros((OBS, 1), dtype=np.float32)
        self.episodes = []

    def play(self):
        obs = self.rng.normal(size=(HORIZON, OBS)).astype(np.float32)
        action = np.tanh(obs @ self.weight + 0.1 * self.rng.normal(size=(HORIZON, 1))).astype(
            np.float32
        )
        reward = -np.square(action - obs[:, :1]).astype(np.float32)
        self.episodes.append((obs, reward))  # feeds
        return obs, action, reward

    def mean_return(self):
        return float(np.mean([r.sum() for _, r in self.episodes[-50:]]))


def act(inbox, outbox, seed):
    torch.set_num_threads(1)
    actor = Actor(seed)
    while True:
        message = inbox.get()
        if message is None:
            break
        actor.weight = message
        obs, action, reward = actor.play()
        outbox.put((obs, action, reward, actor.mean_return()))


def train_step(policy, optimizer, obs, action, reward):
    obs, action = torch.from_numpy(obs), torch.from_numpy(action)
    advantage = torch.from_numpy(reward - reward.mean())
    mean = torch.tanh(policy(obs))
    loss = (advantage.abs() * (mean - action).square() + (mean - obs[:, :1]).square()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    ctx = mp.get_context("spawn")
    to_actor, to_learner = ctx.Queue(), ctx.Queue()
    process = ctx.Process(target=act, args=(to_actor, to_learner, 7), daemon=True)
    process.start()
    policy = nn.Linear(OBS, 1, bias=False)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for step in range(1, 4001):
        to_actor.put(policy.weight.detach().numpy().T.copy())
        obs, action, reward, mean_return = to_learner.get()
        loss = train_step(policy, optimizer, obs, action, reward)
        if step % 250 == 0:
            print(step, f"loss {loss:.4f} return {mean_return:.2f}", flush=True)
    to_actor.put(None)
    process.join()


if __name__ == "__main__":
    main()
