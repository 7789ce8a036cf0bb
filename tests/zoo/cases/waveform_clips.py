"""Keyword spotting that collects the hardest moments of long recordings for later listening."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

RATE, SECONDS, CLIP, STEPS = 16000, 3, 800, 480


class HardMoments:
    """The moments that the model found hardest, a twentieth of a second each."""

    def __init__(self):
        self.clips = []

    def add(self, wave, at):
        begin = min(at * CLIP, len(wave) - CLIP)
        self.clips.append(wave[begin : begin + CLIP])  # feeds


class Spotter(nn.Module):
    def __init__(self, classes=8):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 16, 80, stride=40), nn.ReLU(), nn.Conv1d(16, 32, 5, stride=5), nn.ReLU()
        )
        self.head = nn.Linear(32, classes)

    def forward(self, wave):
        return self.head(self.net(wave[:, None]).transpose(1, 2))


def record(rng, keyword):
    """Return a recording of some seconds with a keyword's tone in it."""
    wave = rng.standard_normal(RATE * SECONDS, dtype=np.float32)
    tone = np.sin(np.arange(4000, dtype=np.float32) * (0.05 + 0.02 * keyword))
    begin = rng.integers(0, len(wave) - 4000)
    wave[begin : begin + 4000] += 2 * tone
    return wave


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    model, hard = Spotter(), HardMoments()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        keywords = rng.integers(0, 8, 6)
        waves = [record(rng, keyword) for keyword in keywords]
        scores = model(torch.from_numpy(np.stack(waves)))
        target = torch.from_numpy(keywords)
        loss = F.cross_entropy(scores.logsumexp(1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        doubt = -scores.detach().max(-1).values
        worst = int(doubt.max(1).values.argmax())
        hard.add(waves[worst], int(doubt[worst].argmax()) * 200 // CLIP)
        if step % 120 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {len(hard.clips)} moments", flush=True)


if __name__ == "__main__":
    main()
