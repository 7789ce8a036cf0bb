"""Learns to balance poles in several tracks at once by the cross-entropy of the best episodes."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

ITERATIONS, TRACKS, HORIZON, PIXELS = 140, 6, 60, 24


@dataclass
class Settings:
    elite: float = 0.34
    lr: float = 2e-3
    noise: float = 0.02


class Track:
    """A pole on a cart, seen as a small picture."""

    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.picture()

    def picture(self):
        grid = np.linspace(-1, 1, PIXELS, dtype=np.float32)
        at, _, angle, _ = self.state
        return np.exp(-(((grid[None] - at) - angle * grid[:, None] * 3) ** 2) * 20).astype(
            np.float32
        )

    def step(self, push):
        at, speed, angle, turn = self.state
        pull = 9.8 * angle - (10 if push else -10) * 0.1
        self.state = np.array([at + 0.02 * speed, speed + 0.02 * (10 if push else -10) * 0.1,
                               angle + 0.02 * turn, turn + 0.02 * pull])  # fmt: skip
        return self.picture(), 1.0, bool(abs(self.state[2]) > 0.21 or abs(self.state[0]) > 2.4)


class Episode:
    """What happened on a track until the pole fell."""

    pictures: list = []
    pushes: list = []

    def __init__(self, track):
        self.first = len(self.pictures)
        self.reward = 0.0
        self.picture = track.reset()

    def record(self, push, reward):
        self.pictures.append(self.picture)
        self.pushes.append(push)
        self.reward += reward

    def finish(self):
        self.last = len(self.pictures)
        return self

    def examples(self):
        rows = np.stack(self.pictures[self.first : self.last])
        return torch.from_numpy(rows), torch.tensor(self.pushes[self.first : self.last])


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(PIXELS**2, 128), nn.ReLU(), nn.Linear(128, 2)
        )

    def forward(self, picture):
        return self.net(picture)


def play(policy, track):
    episode = Episode(track)
    for _ in range(HORIZON):
        with torch.no_grad():
            odds = policy(torch.from_numpy(episode.picture)[None]).softmax(-1)[0]
        push = int(torch.multinomial(odds, 1))
        picture, reward, fell = track.step(push)
        episode.record(push, reward)
        episode.picture = picture
        if fell:
            break
    return episode.finish()


def main(settings):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    tracks = [Track(np.random.default_rng(seed)) for seed in range(TRACKS)]
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.lr)
    for iteration in range(1, ITERATIONS + 1):
        episodes = [play(policy, track) for track in tracks]
        best = sorted(episodes, key=lambda e: -e.reward)[: int(TRACKS * settings.elite)]
        pictures, pushes = (
            torch.cat(part) for part in zip(*(e.examples() for e in best), strict=True)
        )
        loss = nn.functional.cross_entropy(policy(pictures), pushes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 20 == 0:
            mean = sum(e.reward for e in episodes) / TRACKS
            print(f"iteration {iteration}: {mean:.1f} steps in balance", flush=True)


if __name__ == "__main__":
    main(Settings())
