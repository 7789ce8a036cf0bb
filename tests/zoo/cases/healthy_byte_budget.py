"""A tagger of bird songs whose spectrograms are cached up to a budget of bytes."""

import random
from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SONGS, SAMPLES, BANDS, CLASSES, BATCH, STEPS = 700, 16000, 65, 9, 8, 400
BUDGET = 64 << 20


class SpectrogramCache:
    """The spectrograms that were used last, as many as the budget allows."""

    def __init__(self, budget):
        self.budget = budget
        self.used = 0
        self.entries = OrderedDict()
        self.hits = 0

    def get(self, key, make):
        if key in self.entries:
            self.hits += 1
            self.entries.move_to_end(key)
            return self.entries[key]
        value = self.entries[key] = make(key)
        self.used += value.nbytes
        while self.used > self.budget:
            _, oldest = self.entries.popitem(last=False)
            self.used -= oldest.nbytes
        return value


class Songs:
    """Recordings of one to three seconds of a trill whose rate is the species."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.species = self.rng.integers(0, CLASSES, SONGS)
        self.length = self.rng.integers(SAMPLES, 3 * SAMPLES, SONGS)
        self.cache = SpectrogramCache(BUDGET)

    def spectrogram(self, number):
        times = np.arange(self.length[number]) / SAMPLES
        trill = 1000 + 300 * np.sin(2 * np.pi * (4 + 3 * self.species[number]) * times)
        sound = np.sin(2 * np.pi * np.cumsum(trill) / SAMPLES)
        sound += 0.2 * np.random.default_rng(number).standard_normal(len(times))
        frames = np.lib.stride_tricks.sliding_window_view(sound, 256)[::64]
        power = np.abs(np.fft.rfft(frames * np.hanning(256)))[:, :BANDS]
        return np.log1p(power).astype(np.float32)

    def example(self, number):
        whole = self.cache.get(number, self.spectrogram)
        start = int(self.rng.integers(0, len(whole) - 128))
        return torch.from_numpy(whole[start : start + 128]), int(self.species[number])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(BANDS, 96, batch_first=True)
        self.out = nn.Linear(96, CLASSES)

    def forward(self, spectrograms):
        return self.out(self.gru(spectrograms)[0].mean(1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    songs, tagger = Songs(0), Tagger()
    choice = random.Random(1)
    optimizer = torch.optim.Adam(tagger.parameters(), lr=2e-3)
    for step in range(1, STEPS + 1):
        batch = [songs.example(choice.randrange(SONGS)) for _ in range(BATCH)]
        spectrograms = torch.stack([spectrogram for spectrogram, _ in batch])
        labels = torch.tensor([label for _, label in batch])
        loss = F.cross_entropy(tagger(spectrograms), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            cache = songs.cache
            print(f"step {step}: loss {loss.item():.3f}, {cache.used >> 20} MiB", flush=True)


if __name__ == "__main__":
    main()
