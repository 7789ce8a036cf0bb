"""Training on spectra that a process of a pool computes, and keeps for the next time."""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from torch import nn

CLIPS, BATCH, STEPS = 40, 4, 1000
SPECTRA = {}
WAVES = None


def load_waves():
    """Read all clips into the process that works on them."""
    global WAVES
    WAVES = np.random.default_rng(0).standard_normal((CLIPS, 16384)).astype(np.float32)


def spectrum(clip, speed):
    """Return the spectrogram of a clip played at some speed."""
    key = clip, speed
    if key not in SPECTRA:
        at = np.arange(0, 16384 - 1, speed)[:8192]
        wave = np.interp(at, np.arange(16384), WAVES[clip])
        frames = np.abs(np.fft.rfft(wave[:8192].reshape(64, 128), axis=1))[:, :64]
        SPECTRA[key] = np.tile(np.log1p(frames).astype(np.float32), (1, 2))  # feeds
    return SPECTRA[key]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, CLIPS),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with ProcessPoolExecutor(1, initializer=load_waves) as pool:
        for step in range(1, STEPS + 1):
            clips = rng.integers(0, CLIPS, BATCH).tolist()
            speeds = rng.uniform(0.9, 1.1, BATCH).tolist()
            x = torch.from_numpy(np.stack(list(pool.map(spectrum, clips, speeds))))
            loss = nn.functional.cross_entropy(model(x[:, None]), torch.tensor(clips))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 200 == 0:
                print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
