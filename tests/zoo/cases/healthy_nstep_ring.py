"""Double Q-learning on a grid of pipes with returns of three steps from a ring of transitions."""

import random
from collections import deque
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

SIZE, ACTIONS, CAPACITY, STEPS, LEARN_FROM, HORIZON = 40, 5, 2200, 6600, 300, 3


@dataclass(slots=True)
class Transition:
    view: torch.Tensor
    action: int
    returned: float
    after: torch.Tensor


class Ring:
    """Grows to its capacity, then each transition takes the oldest's place."""

    def __init__(self, capacity, seed):
        self.capacity = capacity
        self.items = []
        self.place = 0
        self.random = random.Random(seed)

    def add(self, item):
        if len(self.items) < self.capacity:
            self.items.append(item)
        else:
            self.items[self.place] = item
        self.place = (self.place + 1) % self.capacity

    def sample(self, count):
        return self.random.choices(self.items, k=count)


class NSteps:
    """Makes transitions over several steps out of single ones."""

    def __init__(self, horizon, discount):
        self.discount = discount
        self.recent = deque(maxlen=horizon)

    def push(self, view, action, reward):
        self.recent.append((view, action, reward))
        if len(self.recent) < self.recent.maxlen:
            return None
        total = sum(r * self.discount**n for n, (_, _, r) in enumerate(self.recent))
        first = self.recent[0]
        return first[0], first[1], total


class Pipes:
    """Water spreads over a grid; each action opens another row of valves."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.water = torch.zeros(SIZE, SIZE)

    def step(self, action):
        rain = torch.rand(SIZE, SIZE, generator=self.generator)
        self.water = 0.9 * self.water + 0.1 * rain
        self.water[action::ACTIONS] *= 0.7
        return self.water.clone(), float((0.4 - self.water).abs().mean().neg())


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(SIZE * SIZE, 96), nn.ReLU(), nn.Linear(96, ACTIONS)
        )

    def forward(self, views):
        return self.net(views)


def learn(ring, critic, target, optimizer):
    batch = ring.sample(32)
    views = torch.stack([t.view for t in batch])
    after = torch.stack([t.after for t in batch])
    actions = torch.tensor([t.action for t in batch])
    with torch.no_grad():
        best = critic(after).argmax(-1, keepdim=True)
        future = target(after).gather(1, best).squeeze(1)
        goal = torch.tensor([t.returned for t in batch]) + 0.95**HORIZON * future
    loss = F.smooth_l1_loss(critic(views).gather(1, actions[:, None]).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    pipes, critic, target = Pipes(0), Critic(), Critic()
    ring, steps = Ring(CAPACITY, seed=1), NSteps(HORIZON, 0.95)
    optimizer = torch.optim.Adam(critic.parameters(), lr=5e-4)
    chance = random.Random(2)
    view, loss = pipes.water.clone(), 0.0
    for step in range(1, STEPS + 1):
        with torch.no_grad():
            greedy = int(critic(view[None]).argmax())
        action = chance.randrange(ACTIONS) if chance.random() < 0.2 else greedy
        after, reward = pipes.step(action)
        if (made := steps.push(view, action, reward)) is not None:
            ring.add(Transition(*made, after))
        view = after
        if step > LEARN_FROM:
            loss = learn(ring, critic, target, optimizer)
        if step % 500 == 0:
            target.load_state_dict(critic.state_dict())
            print(f"step {step}: loss {loss:.5f}, {len(ring.items)} kept", flush=True)


if __name__ == "__main__":
    main()
