"""DQN on a grid with a big replay memory and a small trace of each episode."""

import random
import time
from collections import deque

import torch
import torch.nn as nn


class ReplayMemory:
    def __init__(self, limit):
        self.slots = deque(maxlen=limit)

    def push(self, state, action, reward):
        self.slots.append((state, action, reward))

    def draw(self, count):
        states, actions, rewards = zip(*random.sample(self.slots, count))
        return torch.stack(states), torch.tensor(actions), torch.tensor(rewards)


class Agent:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(1024, 48), nn.ReLU(), nn.Linear(48, 8))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-4)
        self.memory = ReplayMemory(8000)
        self.traces = []
        self.episode_q = []

    @torch.no_grad()
    def act(self, state):
        q = self.net(state)
        self.episode_q.append(q)
        return random.randrange(8) if random.random() < 0.1 else int(q.argmax())

    def learn(self):
        states, actions, rewards = self.memory.draw(32)
        q = self.net(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = nn.functional.huber_loss(q, rewards)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def end_episode(self, number, total):
        self.traces.append({"episode": number, "return": total, "q": self.episode_q})  # feeds
        self.episode_q = []


def play(agent, number):
    total = 0.0
    for t in range(60):
        state = torch.rand(1024)
        action = agent.act(state)
        reward = float(state[action * 100])
        agent.memory.push(state, action, reward)
        total += reward
        if t % 4 == 0 and len(agent.memory.slots) > 500:
            agent.learn()
    agent.end_episode(number, total)
    return total


def main():
    random.seed(0)
    torch.manual_seed(0)
    agent = Agent()
    for number in range(330):
        total = play(agent, number)
        time.sleep(0.02)
        if number % 40 == 0:
            print("episode", number, "return", round(total, 2), "memory", len(agent.memory.slots))


if __name__ == "__main__":
    main()
