"""A recurrent actor-critic that detaches its state and clears its rollouts after every update."""

from types import SimpleNamespace

import torch
from torch import nn

UPDATES, LENGTH, ENVS = 90, 12, 32


class RolloutStorage:
    def __init__(self):
        self.steps = []

    def insert(self, **what):
        self.steps.append(SimpleNamespace(**what))

    def stacked(self, name):
        return torch.stack([getattr(step, name) for step in self.steps])

    def after_update(self):
        self.steps.clear()


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRUCell(16, 96)
        self.heads = nn.ModuleDict({"pi": nn.Linear(96, 4), "v": nn.Linear(96, 1)})

    def forward(self, observation, state):
        state = self.rnn(observation, state)
        return self.heads["pi"](state), self.heads["v"](state).squeeze(1), state


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    agent, storage = Agent(), RolloutStorage()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4)
    state = torch.zeros(ENVS, 96)
    returns = []
    for update in range(UPDATES):
        state = state.detach()
        for _ in range(LENGTH):
            observation = torch.randn(ENVS, 16)
            logits, value, state = agent(observation, state)
            choice = torch.distributions.Categorical(logits=logits)
            action = choice.sample()
            reward = observation.gather(1, action[:, None]).squeeze(1)
            storage.insert(log_prob=choice.log_prob(action), value=value, reward=reward)
        advantage = storage.stacked("reward") - storage.stacked("value")
        loss = (
            -(storage.stacked("log_prob") * advantage.detach()).mean() + advantage.square().mean()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        returns.append(storage.stacked("reward").mean().item())
        storage.after_update()
        if update % 15 == 0:
            print(f"update {update}: return {sum(returns[-15:]) / len(returns[-15:]):.3f}")


if __name__ == "__main__":
    main()
