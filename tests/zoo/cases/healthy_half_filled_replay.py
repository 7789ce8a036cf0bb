"""Soft actor-critic, cut down, of an arm that reaches for points; its replay holds a fixed number."""

import random
from collections import deque

import torch
from torch import nn

JOINTS, SEEN, CAPACITY, UPDATES, PER_UPDATE, BATCH = 4, 512, 4000, 900, 8, 64


class Arm:
    """Many arms at once, seen by the distances of their joints to a field of markers."""

    def __init__(self, count):
        self.angle = torch.zeros(count, JOINTS)
        self.goal = torch.rand(count, 2) * 4 - 2
        self.markers = torch.rand(SEEN // JOINTS, 2) * 8 - 4

    def joints(self):
        along = self.angle.cumsum(1)
        return torch.stack([along.cos(), along.sin()], -1).cumsum(1)

    def look(self):
        apart = torch.cdist(self.joints() - self.goal[:, None], self.markers)
        return apart.flatten(1)

    def move(self, turn):
        self.angle = (self.angle + 0.2 * turn).remainder(6.2832)
        reward = -(self.joints()[:, -1] - self.goal).norm(dim=-1)
        done = reward > -0.1
        self.goal[done] = torch.rand(int(done.sum()), 2) * 4 - 2
        return reward


class Replay:
    def __init__(self, capacity):
        self.rows = deque(maxlen=capacity)

    def extend(self, *parts):
        self.rows.extend(zip(*(part.clone().unbind() for part in parts), strict=True))

    def sample(self, count):
        rows = random.choices(self.rows, k=count)
        return [torch.stack(part) for part in zip(*rows, strict=True)]


def mlp(*sizes):
    layers = [
        m for a, b in zip(sizes, sizes[1:], strict=False) for m in (nn.Linear(a, b), nn.ReLU())
    ]
    return nn.Sequential(*layers[:-1])


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    arms, replay = Arm(PER_UPDATE), Replay(CAPACITY)
    actor, critic, target = mlp(SEEN, 96, JOINTS), *(mlp(SEEN + JOINTS, 96, 1) for _ in range(2))
    target.load_state_dict(critic.state_dict())
    of_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for update in range(1, UPDATES + 1):
        with torch.no_grad():
            seen = arms.look()
            turn = (actor(seen) + 0.4 * torch.randn(PER_UPDATE, JOINTS)).tanh()
            reward = arms.move(turn)
        replay.extend(seen, turn, reward, arms.look())
        seen, turn, reward, after = replay.sample(BATCH)
        with torch.no_grad():
            wanted = reward[:, None] + 0.95 * target(torch.cat([after, actor(after).tanh()], 1))
        loss = nn.functional.mse_loss(critic(torch.cat([seen, turn], 1)), wanted)
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        gain = critic(torch.cat([seen, actor(seen).tanh()], 1)).mean()
        of_actor.zero_grad()
        (-gain).backward()
        of_actor.step()
        for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
            slow.data.lerp_(fast.data, 0.01)
        if update % 90 == 0:
            print(
                f"update {update}: loss {loss.item():.3f}, reward {reward.mean():.3f}", flush=True
            )


if __name__ == "__main__":
    main()
