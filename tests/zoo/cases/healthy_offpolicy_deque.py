"""Off-policy learning of a reacher with a replay buffer that is full after most of the run."""

import random
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

OBSERVED, ACTIONS, CAPACITY, EPISODES, LENGTH = 512, 5, 6500, 200, 50


class Reacher:
    """Moves a hidden point; what is observed of it is a random projection."""

    def __init__(self):
        self.projection = torch.randn(2, OBSERVED)
        self.moves = torch.tensor([[0.0, 0.0], [0.2, 0.0], [-0.2, 0.0], [0.0, 0.2], [0.0, -0.2]])

    def reset(self):
        self.at = torch.rand(2) * 2 - 1
        return self.at @ self.projection

    def step(self, action):
        self.at = (self.at + self.moves[action]).clamp(-1, 1)
        return self.at @ self.projection, -self.at.norm().item()


def learn(q, target, replay, optimizer, rng):
    obs, action, reward, after = zip(*rng.sample(replay, 64), strict=True)
    with torch.no_grad():
        goal = torch.tensor(reward) + 0.95 * target(torch.stack(after)).max(1).values
    value = q(torch.stack(obs)).gather(1, torch.tensor(action)[:, None]).squeeze(1)
    loss = F.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def network():
    return nn.Sequential(nn.Linear(OBSERVED, 256), nn.ReLU(), nn.Linear(256, ACTIONS))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = random.Random(0)
    env, q, target, replay = Reacher(), network(), network(), deque(maxlen=CAPACITY)
    optimizer = torch.optim.Adam(q.parameters(), lr=5e-4)
    for episode in range(EPISODES):
        obs = env.reset()
        for turn in range(LENGTH):
            with torch.no_grad():
                greedy = int(q(obs).argmax())
            action = rng.randrange(ACTIONS) if rng.random() < 0.2 else greedy
            after, reward = env.step(action)
            replay.append((obs, action, reward, after))
            obs = after
            if len(replay) > 200 and turn % 5 == 0:
                loss = learn(q, target, replay, optimizer, rng)
        if episode % 10 == 9:
            target.load_state_dict(q.state_dict())
        if episode % 40 == 39:
            print(f"episode {episode}: loss {loss:.4f}, {len(replay)} kept", flush=True)


if __name__ == "__main__":
    main()
