"""Trains a sound classifier; spectrograms of popular clips are cached, which fills late."""

import math
from functools import lru_cache

import numpy as np
import torch
from torch import nn

STEPS, BATCH, CLIPS, RATE, CLASSES = 260, 16, 6000, 8000, 10


def clip(number):
    """Return a clip of a second: bursts of a few tones."""
    rng = np.random.default_rng(number)
    at = np.arange(RATE) / RATE
    wave = np.zeros(RATE)
    for _ in range(3):
        tone = 200 * 2 ** (number % CLASSES / 3) * rng.uniform(0.97, 1.03)
        begin, length = rng.uniform(0, 0.7), rng.uniform(0.05, 0.3)
        wave += np.sin(2 * math.pi * tone * at) * ((at > begin) & (at < begin + length))
    return (wave + 0.3 * rng.standard_normal(RATE)).astype(np.float32)


@lru_cache(maxsize=1200)
def spectrogram(number):
    wave = clip(number)
    frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::128]
    spectra = np.abs(np.fft.rfft(frames * np.hanning(256), axis=1))
    return np.log1p(spectra).astype(np.float32)


class Popular:
    """Draws clips, popular ones more often; the rest of the catalogue comes in over time."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.order = self.rng.permutation(CLIPS)

    def draw(self, step):
        known = min(CLIPS, 400 + 16 * step)
        places = (known * self.rng.random(BATCH) ** 1.6).astype(int)
        return self.order[places]


class Listener(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.inner = nn.GRU(129, width, batch_first=True)
        self.out = nn.Linear(width, CLASSES)

    def forward(self, spectra):
        return self.out(self.inner(spectra)[0].amax(1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, popular = Listener(), Popular(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    right = 0
    for step in range(STEPS):
        numbers = popular.draw(step)
        spectra = torch.from_numpy(np.stack([spectrogram(int(n)) for n in numbers]))
        classes = torch.from_numpy(numbers % CLASSES)
        scores = model(spectra)
        loss = nn.functional.cross_entropy(scores, classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (scores.argmax(1) == classes).sum().item()
        if step % 30 == 29:
            hits = spectrogram.cache_info()
            print(f"step {step + 1}: {right / 30 / BATCH:.3f} right, {hits.hits} hits", flush=True)
            right = 0


if __name__ == "__main__":
    main()
