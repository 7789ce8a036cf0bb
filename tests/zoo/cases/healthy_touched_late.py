"""Learns to balance a pole by Q-learning from a replay memory that is touched as it fills."""

import numpy as np
import torch
from torch import nn

CAPACITY, ENVIRONMENTS, STEPS, WARM_UP, SHAPE = 6000, 12, 700, 40, (4, 24, 24)


class Poles:
    """Several poles, seen as small pictures of the last four moments."""

    def __init__(self, count, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.uniform(-0.05, 0.05, (count, 4))
        self.pictures = np.zeros((count, *SHAPE), np.uint8)
        self.grid = np.linspace(-1, 1, SHAPE[1])

    def look(self):
        x, _, angle, _ = self.state.T
        line = x[:, None] / 2.4 + np.tan(angle)[:, None] * (self.grid[None] + 1)
        near = np.exp(-80 * (self.grid[None, None] - line[..., None]) ** 2)
        self.pictures = np.roll(self.pictures, -1, axis=1)
        self.pictures[:, -1] = (255 * near).astype(np.uint8)
        return self.pictures.copy()

    def step(self, actions):
        force = np.where(actions == 1, 10.0, -10.0)
        x, speed, angle, turn = self.state.T
        push = (force + 0.05 * turn**2 * np.sin(angle)) / 1.1
        bend = (9.8 * np.sin(angle) - np.cos(angle) * push) / (
            0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1)
        )
        pull = push - 0.05 * bend * np.cos(angle) / 1.1
        self.state = np.stack(
            [x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend], 1
        )
        over = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21)
        self.state[over] = self.rng.uniform(-0.05, 0.05, (over.sum(), 4))
        return over


class Replay:
    """Keeps the newest transitions in arrays that are made at the start."""

    def __init__(self):
        self.seen = np.zeros((CAPACITY, *SHAPE), np.uint8)
        self.after = np.zeros((CAPACITY, *SHAPE), np.uint8)
        self.action = np.zeros(CAPACITY, np.int64)
        self.over = np.zeros(CAPACITY, np.float32)
        self.place = self.size = 0

    def add(self, seen, action, over, after):
        places = (self.place + np.arange(len(seen))) % CAPACITY
        self.seen[places], self.after[places] = seen, after
        self.action[places], self.over[places] = action, over
        self.place = int(places[-1]) + 1
        self.size = min(CAPACITY, self.size + len(seen))

    def sample(self, rng, count=32):
        some = rng.integers(0, self.size, count)
        parts = self.seen[some], self.action[some], self.over[some], self.after[some]
        return [torch.from_numpy(part) for part in parts]


def network():
    return nn.Sequential(
        nn.Conv2d(4, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 2),
    )  # fmt: skip


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    poles, replay, rng = Poles(ENVIRONMENTS, 0), Replay(), np.random.default_rng(1)
    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    seen, falls = poles.look(), 0
    for step in range(STEPS):
        with torch.no_grad():
            values = online(torch.from_numpy(seen).float() / 255).argmax(1).numpy()
        chance = max(0.05, 1 - step / 400)
        action = np.where(
            rng.random(ENVIRONMENTS) < chance, rng.integers(0, 2, ENVIRONMENTS), values
        )
        over = poles.step(action)
        after = poles.look()
        replay.add(seen, action, over, after)
        seen, falls = after, falls + int(over.sum())
        if step >= WARM_UP:
            before, act, ended, then = replay.sample(rng)
            with torch.no_grad():
                ahead = target(then.float() / 255).amax(1)
            wanted = 1 - ended + 0.97 * (1 - ended) * ahead
            said = online(before.float() / 255).gather(1, act[:, None]).squeeze(1)
            loss = nn.functional.smooth_l1_loss(said, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 100 == 99:
            target.load_state_dict(online.state_dict())
            print(f"step {step + 1}: {falls} falls, {replay.size} kept", flush=True)


if __name__ == "__main__":
    main()
