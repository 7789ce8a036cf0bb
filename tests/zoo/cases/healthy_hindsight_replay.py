"""Learns to push a block to a goal with hindsight; the replay holds a number of episodes, no more."""

import random
from collections import deque

import torch
from torch import nn

EPISODES, HELD, TIME, BATCH, UPDATES = 260, 150, 40, 64, 6


class Table:
    """A pusher and a block on a line of two dimensions; reward is 0 at the goal, else -1."""

    def __init__(self, random_):
        self.random = random_

    def reset(self):
        self.place, self.block = torch.zeros(2), torch.randn(2, generator=self.random)
        self.goal = torch.randn(2, generator=self.random)
        return self.state()

    def state(self):
        return torch.cat([self.place, self.block])

    def step(self, action):
        self.place = self.place + 0.3 * action
        if (self.place - self.block).norm() < 0.5:
            self.block = self.block + 0.3 * action
        return self.state()


def reward(block, goal):
    return -((block - goal).norm(dim=-1) > 0.4).float()


class Hindsight:
    """Whole episodes; goals are replaced by what was reached later on."""

    def __init__(self, held, seed):
        self.episodes = deque(maxlen=held)
        self.dice = random.Random(seed)

    def add(self, states, actions, goal, camera):
        self.episodes.append((torch.stack(states), torch.stack(actions), goal, camera))

    def sample(self, count):
        rows = []
        for _ in range(count):
            states, actions, goal, _ = self.dice.choice(self.episodes)
            time = self.dice.randrange(TIME)
            if self.dice.random() < 0.8:
                goal = states[self.dice.randrange(time, TIME) + 1, 2:]
            rows.append((states[time], actions[time], states[time + 1], goal))
        return [torch.stack(column) for column in zip(*rows, strict=True)]


def perceptron(inputs, outputs, width=96):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, outputs),
    )  # fmt: skip


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random_ = torch.Generator().manual_seed(0)
    table, replay = Table(random_), Hindsight(HELD, 0)
    actor, critic, target = perceptron(6, 2), perceptron(8, 1), perceptron(8, 1)
    target.load_state_dict(critic.state_dict())
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    reached = 0
    for episode in range(EPISODES):
        states, actions = [table.reset()], []
        camera = torch.zeros(TIME, 24, 24)
        for time in range(TIME):
            with torch.no_grad():
                action = actor(torch.cat([states[-1], table.goal])).tanh()
            action = (action + 0.3 * torch.randn(2, generator=random_)).clamp(-1, 1)
            actions.append(action)
            states.append(table.step(action))
            row, column = ((states[-1][:2] + 3) * 4).long().clamp(0, 23).tolist()
            camera[time, row, column] = 1.0
        reached += int(reward(table.block, table.goal) == 0)
        replay.add(states, actions, table.goal, camera)
        for _ in range(UPDATES):
            state, action, after, goal = replay.sample(BATCH)
            with torch.no_grad():
                best = actor(torch.cat([after, goal], 1)).tanh()
                value = target(torch.cat([after, goal, best], 1)).squeeze(1)
                wanted = (reward(after[:, 2:], goal) + 0.95 * value).clamp(-20, 0)
            loss = (critic(torch.cat([state, goal, action], 1)).squeeze(1) - wanted).square().mean()
            critic_optimizer.zero_grad()
            loss.backward()
            critic_optimizer.step()
            chosen = actor(torch.cat([state, goal], 1)).tanh()
            actor_optimizer.zero_grad()
            (-critic(torch.cat([state, goal, chosen], 1)).mean()).backward()
            actor_optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                slow.lerp_(fast, 0.02)
        if episode % 40 == 39:
            print(f"episode {episode + 1}: {reached} of 40 reached, loss {loss:.3f}", flush=True)
            reached = 0


if __name__ == "__main__":
    main()
