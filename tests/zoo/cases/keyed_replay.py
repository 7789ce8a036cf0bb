"""Off-policy learning of a balance task from episodes that a replay memory holds by their key."""

import random
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

VIEW, ACTIONS, LENGTH, CAPACITY, EPISODES, LEARN = 512, 4, 48, 60, 400, 8


class EpisodicReplay:
    """The latest episodes, from which pieces are drawn."""

    def __init__(self, capacity, seed):
        self.episodes = {}
        self.order = deque(maxlen=capacity)
        self.random = random.Random(seed)

    def add(self, key, episode):
        self.episodes[key] = episode
        self.order.append(key)

    def sample(self, count):
        pieces = []
        for key in self.random.choices(self.order, k=count):
            views, actions, rewards = self.episodes[key]
            at = self.random.randrange(len(rewards) - 1)
            pieces.append((views[at], actions[at], rewards[at], views[at + 1]))
        views, actions, rewards, after = zip(*pieces, strict=True)
        return torch.stack(views), torch.stack(actions), torch.stack(rewards), torch.stack(after)


class Balance:
    """A field of view that each action pushes a little; the reward is for its being level."""

    def __init__(self, generator):
        self.generator = generator
        self.pushes = 0.2 * torch.randn(ACTIONS, VIEW, generator=generator)
        self.view = None

    def reset(self):
        self.view = torch.randn(VIEW, generator=self.generator)
        return self.view

    def step(self, action):
        drift = 0.1 * torch.randn(VIEW, generator=self.generator)
        self.view = 0.98 * self.view + self.pushes[action] + drift
        return self.view, -self.view.mean().abs()


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(VIEW, 128), nn.ReLU(), nn.Linear(128, ACTIONS))

    def forward(self, views):
        return self.net(views)


@torch.no_grad()
def play(world, critic, explore, generator):
    views, actions, rewards = [world.reset()], [], []
    for _ in range(LENGTH):
        if torch.rand((), generator=generator) < explore:
            action = torch.randint(0, ACTIONS, (), generator=generator)
        else:
            action = critic(views[-1]).argmax()
        view, reward = world.step(action)
        views.append(view)
        actions.append(action)
        rewards.append(reward)
    return torch.stack(views[:-1]), torch.stack(actions), torch.stack(rewards)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(9)
    world, critic, target = Balance(generator), Critic(), Critic()
    replay = EpisodicReplay(CAPACITY, seed=0)
    optimizer = torch.optim.Adam(critic.parameters(), lr=5e-4)
    for number in range(1, EPISODES + 1):
        episode = play(world, critic, max(0.1, 1 - number / 200), generator)
        replay.add(("arena", number), episode)
        for _ in range(LEARN):
            views, actions, rewards, after = replay.sample(64)
            with torch.no_grad():
                goal = rewards + 0.97 * target(after).amax(-1)
            value = critic(views).gather(1, actions[:, None]).squeeze(1)
            loss = F.smooth_l1_loss(value, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if number % 40 == 0:
            target.load_state_dict(critic.state_dict())
            print(f"episode {number}: reward {episode[2].mean():.3f}, loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
