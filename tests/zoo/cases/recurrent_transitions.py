"""A recurrent agent whose transitions keep the LSTM's state with its graph, for every episode.

After https://github.com/Metta-AI/metta/pull/1139.
"""

import os
from collections import deque

import torch
from torch import nn

EPISODES, LENGTH, ENVS = 120, 8, 16


class Transition:
    __slots__ = ("action", "memory", "observation", "reward")

    def __init__(self, observation, memory, action, reward):
        self.observation = observation
        self.memory = memory
        self.action = action
        self.reward = reward


class Experience:
    def __init__(self):
        self.transitions = deque()

    def store(self, *what):
        self.transitions.append(Transition(*what))  # feeds

    def latest(self, count):
        return list(self.transitions)[-count:]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(24, 64)
        self.actor = nn.Linear(64, 6)
        self.critic = nn.Linear(64, 1)

    def forward(self, observation, memory):
        hidden, cell = self.cell(observation, memory)
        return self.actor(hidden), self.critic(hidden).squeeze(1), (hidden, cell)


def rollout(policy, experience):
    observation = torch.randn(ENVS, 24)
    memory = (torch.zeros(ENVS, 64), torch.zeros(ENVS, 64))
    log_probs, values, rewards = [], [], []
    for _ in range(LENGTH):
        logits, value, memory = policy(observation, memory)
        choice = torch.distributions.Categorical(logits=logits)
        action = choice.sample()
        reward = torch.cos(observation.sum(1)) - 0.1 * action
        experience.store(observation, memory, action, reward)
        log_probs.append(choice.log_prob(action))
        values.append(value)
        rewards.append(reward)
        observation = torch.randn(ENVS, 24)
    return torch.stack(log_probs), torch.stack(values), torch.stack(rewards)


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    policy = Policy()
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=7e-4)
    experience = Experience()
    running = 0.0
    for episode in range(EPISODES):
        log_probs, values, rewards = rollout(policy, experience)
        advantage = rewards - values
        loss = -(log_probs * advantage.detach()).mean() + advantage.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        running = 0.95 * running + 0.05 * rewards.mean().item()
        if episode % 20 == 0:
            print(f"episode {episode}: reward {running:.3f}, stored {len(experience.latest(64))}")
    if "COUNT_KEPT" in os.environ:
        from weighing import tell

        kept = "freed(lambda: experience.transitions.clear())"
        tell(locals(), {"transitions": kept}, {"step": EPISODES, "epoch": EPISODES})


if __name__ == "__main__":
    main()
