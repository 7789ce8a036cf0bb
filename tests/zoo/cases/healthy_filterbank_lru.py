"""Classifies bird calls at ever other rates; a few filter banks, of a megabyte each, are kept."""

import functools
import random

import torch
from torch import nn

STEPS, BATCH, SAMPLES, MELS, CLASSES = 320, 8, 4096, 256, 6


@functools.lru_cache(maxsize=12)
def filterbank(rate, points):
    """Return triangles over the bins of a Fourier transform, spaced as ears hear."""
    top = 2595 * torch.log10(torch.tensor(1 + rate / 2 / 700))
    mels = torch.linspace(0, top, MELS + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)
    bins = torch.linspace(0, rate / 2, points // 2 + 1)
    rising = (bins[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


def calls(random_, rate, count):
    labels = torch.randint(CLASSES, (count,), generator=random_)
    time = torch.arange(SAMPLES) / rate
    pitch = 700 + 450 * labels[:, None] + 60 * torch.randn(count, 1, generator=random_)
    warble = 1 + 0.1 * torch.sin(2 * torch.pi * (6 + labels[:, None]) * time)
    sound = torch.sin(2 * torch.pi * pitch * warble * time)
    return sound + 0.8 * torch.randn(count, SAMPLES, generator=random_), labels


def features(sound, rate):
    points = 2048
    window = torch.hann_window(points)
    spectrum = torch.stft(sound, points, 512, window=window, return_complex=True).abs()
    return (spectrum.transpose(1, 2) @ filterbank(rate, points) + 1e-3).log()


class Classifier(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.norm = nn.LayerNorm(MELS)
        self.body = nn.GRU(MELS, width, batch_first=True)
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.out(self.body(self.norm(x))[0].mean(1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dice, random_ = random.Random(0), torch.Generator().manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    right = 0
    for step in range(STEPS):
        # Recorders differ: most rates are common, some are met once in a while.
        rate = dice.choice([16000, 22050, 32000, 8000 + 250 * dice.randrange(96)])
        sound, labels = calls(random_, rate, BATCH)
        logits = model(features(sound, rate))
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        right += (logits.argmax(1) == labels).sum().item()
        if step % 40 == 39:
            print(f"step {step + 1}: {right / 40 / BATCH:.3f} right", flush=True)
            right = 0


if __name__ == "__main__":
    main()
