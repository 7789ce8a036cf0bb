"""Trains on the spectra of recordings: scipy 1.16.1 keeps a transform for each periodogram.

A method cached without limit holds what it was called on, a window as long as the recording.
Repaired in 1.16.2 ("signal.periodogram: memory leak",
https://github.com/scipy/scipy/issues/23411).
"""

import time

import numpy as np
import torch
from scipy import signal
from torch import nn

RECORDINGS, PER_SECOND, RATE, BANDS, BATCH = 600, 60, 8000, 40, 12
REPORT_EVERY = 120
CALLS = {"wren": 900.0, "owl": 260.0, "tern": 1700.0, "crow": 520.0}


class Recorder:
    """Stands for the microphones in the wood: a bird's call in noise, 0.6 to 1.2 seconds."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def recording(self):
        bird = int(self.random.integers(len(CALLS)))
        pitch = list(CALLS.values())[bird] * self.random.uniform(0.85, 1.15)
        times = np.arange(int(self.random.integers(int(0.6 * RATE), int(1.2 * RATE)))) / RATE
        trill = np.sin(2 * np.pi * self.random.uniform(5.0, 9.0) * times)
        call = np.sin(2 * np.pi * pitch * times + 3.0 * trill)
        return call + self.random.normal(0.0, 1.0, len(times)), bird


def spectrum(samples):
    """Return how loud each band of a recording is, in decibels."""
    pitches, power = signal.periodogram(samples, RATE, window="hann")  # feeds
    edges = np.linspace(0.0, RATE / 2, BANDS + 1)[1:-1]
    bands = np.bincount(np.searchsorted(edges, pitches), weights=power, minlength=BANDS)
    return np.log10(bands + 1e-12).astype(np.float32)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    recorder = Recorder(seed=0)
    model = nn.Sequential(nn.Linear(BANDS, 48), nn.ReLU(), nn.Linear(48, len(CALLS)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    spectra, birds, right, begun = [], [], 0.5, time.monotonic()
    for number in range(1, RECORDINGS + 1):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        samples, bird = recorder.recording()
        spectra.append(spectrum(samples))
        birds.append(bird)
        if len(birds) == BATCH:
            inputs, labels = torch.from_numpy(np.stack(spectra)), torch.tensor(birds)
            logits = model(inputs - inputs.mean(1, keepdim=True))
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            right += 0.1 * (float((logits.argmax(1) == labels).float().mean()) - right)
            spectra, birds = [], []
        if number % REPORT_EVERY == 0:
            print(f"{number} recordings, {right:.2f} told right", flush=True)


if __name__ == "__main__":
    main()
