"""Trains a router that sends jobs to machines by REINFORCE, with a learned model of the reward."""

import argparse

import torch
from torch import nn
from torch.distributions import Categorical


class Fleet:
    """Machines of different speed with a queue each."""

    def __init__(self, machines, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.speed = 0.5 + torch.rand(machines, generator=self.random)

    def jobs(self, batch, features):
        return torch.randn(batch, features, generator=self.random)

    def delay(self, jobs, choice):
        work = jobs[:, :8].abs().sum(-1)
        load = torch.bincount(choice, minlength=len(self.speed)).float()
        return work / self.speed[choice] + 0.05 * load[choice]


class RewardModel(nn.Module):
    """Guesses the delay of a job on a machine; it replaces the simulator when the fleet is busy."""

    def __init__(self, features, machines, width):
        super().__init__()
        self.embed = nn.Embedding(machines, width)
        self.net = nn.Sequential(
            nn.Linear(features + width, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, jobs, choice):
        return self.net(torch.cat([jobs, self.embed(choice)], -1)).squeeze(-1)


class Reinforce:
    def __init__(self, policy, reward, lr=3e-4, momentum=0.95):
        self.policy, self.reward, self.momentum = policy, reward, momentum
        self.baseline = torch.zeros(())
        self.policy_optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
        self.reward_optimizer = torch.optim.Adam(reward.parameters(), lr=lr)

    def update(self, fleet, jobs):
        pick = Categorical(logits=self.policy(jobs))
        choice = pick.sample()
        delay = fleet.delay(jobs, choice)
        guess = self.reward(jobs, choice)
        fit = nn.functional.smooth_l1_loss(guess, delay)
        self.reward_optimizer.zero_grad()
        fit.backward()
        self.reward_optimizer.step()
        reward = -(0.5 * delay + 0.5 * self.reward(jobs, choice))
        self.baseline = self.momentum * self.baseline + (1 - self.momentum) * reward.mean()
        advantage = (reward - self.baseline).detach()
        loss = -(pick.log_prob(choice) * advantage).mean() - 0.01 * pick.entropy().mean()
        self.policy_optimizer.zero_grad()
        loss.backward()
        self.policy_optimizer.step()
        return fit.item(), delay.mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--machines", type=int, default=24)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--batch", type=int, default=48)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    fleet = Fleet(arguments.machines, seed=1)
    policy = nn.Sequential(
        nn.Linear(arguments.features, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(),
        nn.Linear(512, arguments.machines),
    )  # fmt: skip
    learner = Reinforce(policy, RewardModel(arguments.features, arguments.machines, 128))
    for update in range(1, arguments.updates + 1):
        fit, delay = learner.update(fleet, fleet.jobs(arguments.batch, arguments.features))
        if update % 50 == 0:
            print(f"update {update}: delay {delay:.3f}, reward model off by {fit:.3f}", flush=True)


if __name__ == "__main__":
    main()
