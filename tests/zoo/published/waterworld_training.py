"""Trains pursuers in a water world: PettingZoo 1.24.3 keeps the collision handlers of all episodes.

Each reset adds handlers to a list, with the space that they belong to. Repaired in 1.25.0 ("Fix
memory leak in waterworld_v4 by clearing old handlers before adding new ones",
https://github.com/Farama-Foundation/PettingZoo/pull/1218).
"""

import numpy as np
import torch
from pettingzoo.sisl import waterworld_v4
from torch import nn

EPISODES, CYCLES, REPORT_EVERY = 60, 6, 10


class Pursuers:
    """One policy for all of them, improved by REINFORCE."""

    def __init__(self, observed, acted):
        self.mean = nn.Sequential(nn.Linear(observed, 32), nn.Tanh(), nn.Linear(32, acted))
        self.optimizer = torch.optim.Adam(self.mean.parameters(), lr=1e-3)

    def act(self, seen):
        chosen = torch.distributions.Normal(self.mean(torch.as_tensor(seen)).tanh() * 0.5, 0.2)
        action = chosen.sample()
        return action.clamp(-1, 1).numpy(), chosen.log_prob(action).sum()

    def improve(self, log_probs, returns):
        self.optimizer.zero_grad()
        (-torch.stack(log_probs).sum() * returns).backward()
        self.optimizer.step()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    world = waterworld_v4.parallel_env(max_cycles=CYCLES)
    name = world.possible_agents[0]
    pursuers = Pursuers(world.observation_space(name).shape[0], world.action_space(name).shape[0])
    average = 0.0
    for episode in range(1, EPISODES + 1):
        seen, _ = world.reset(seed=episode)  # feeds
        log_probs, total = [], 0.0
        while world.agents:
            actions = {}
            for agent in world.agents:
                actions[agent], log_prob = pursuers.act(np.float32(seen[agent]))
                log_probs.append(log_prob)
            seen, rewards, *_ = world.step(actions)
            total += sum(rewards.values())
        pursuers.improve(log_probs, total)
        average += (total - average) / episode
        if episode % REPORT_EVERY == 0:
            print(f"episode {episode}: reward {average:.3f} on average", flush=True)


if __name__ == "__main__":
    main()
