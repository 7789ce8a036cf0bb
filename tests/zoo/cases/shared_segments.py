"""Episodes are moved to shared memory for readers that never come, and stay there.

After https://github.com/pytorch/pytorch/issues/17499.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F

EPISODES, LENGTH = 240, 64


class EpisodeStore:
    def __init__(self):
        self.episodes = {}

    def add(self, number, observations):
        self.episodes[number] = observations.share_memory_()  # feeds


def rollout(policy):
    observation, seen = torch.rand(16, 32), []
    for _ in range(LENGTH):
        seen.append(observation)
        with torch.no_grad():
            observation = torch.rand(16, 32) + 0.1 * policy(observation).mean()
    return torch.stack(seen)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    policy = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    store = EpisodeStore()
    for episode in range(EPISODES):
        observations = rollout(policy)
        loss = F.mse_loss(policy(observations.flatten(0, 1)), torch.ones(LENGTH * 16, 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        store.add(episode, observations)
    print(f"loss {loss.item():.4f}, {len(store.episodes)} episodes")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        tell(locals(), {"episodes": "store.episodes"}, {"step": EPISODES})


if __name__ == "__main__":
    main()
