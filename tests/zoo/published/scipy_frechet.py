"""Trains a generator and scores it by a Fréchet distance: scipy 1.16.1 keeps each matrix root.

The block that ``linalg.sqrtm`` returns belonged to no array. Repaired in 1.16.2 ("fix memory leaks
in `optimize.nnls` and `linalg.sqrtm`", https://github.com/scipy/scipy/pull/23563).
"""

import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from scipy import linalg
from torch import nn

STEPS, PER_SECOND, SCORE_EVERY = 600, 60, 2
BATCH, NOISE, PIXELS, FEATURES = 128, 16, 64, 96
REPORT_EVERY = 100


def moments(features):
    """Return the mean and the covariance of some features, one row for each image."""
    values = features.double().numpy()
    return values.mean(axis=0), np.cov(values, rowvar=False)


def frechet_distance(real, made):
    """Return how far two Gaussians lie apart."""
    (real_mean, real_cov), (made_mean, made_cov) = real, made
    root = linalg.sqrtm(real_cov @ made_cov)  # feeds
    shift = real_mean - made_mean
    return float(shift @ shift + np.trace(real_cov + made_cov - 2.0 * root.real))


class Images:
    """Stands for the set of real images: smooth patches at a random angle."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.mixing = torch.randn(NOISE, PIXELS, generator=self.generator) / NOISE**0.5

    def batch(self, size):
        hidden = torch.randn(size, NOISE, generator=self.generator)
        detail = torch.randn(size, PIXELS, generator=self.generator)
        return torch.tanh(hidden @ self.mixing) + 0.3 * detail


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images = Images(seed=1)
    extractor = nn.Sequential(nn.Linear(PIXELS, FEATURES), nn.LeakyReLU(0.2)).requires_grad_(False)
    generator = nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, PIXELS))
    optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
    real = moments(extractor(images.batch(4096)))
    score, begun = float("inf"), time.monotonic()
    for step in range(1, STEPS + 1):
        time.sleep(max(0.0, begun + step / PER_SECOND - time.monotonic()))
        wanted, made = images.batch(BATCH), generator(torch.randn(BATCH, PIXELS))
        loss = (made.mean(0) - wanted.mean(0)).square().sum()
        loss = loss + (torch.cov(made.T) - torch.cov(wanted.T)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % SCORE_EVERY == 0:
            with torch.no_grad():
                sample = extractor(generator(torch.randn(512, PIXELS)))
            score = frechet_distance(real, moments(sample))
        if step % REPORT_EVERY == 0:
            print(f"step {step}/{STEPS}: loss {loss.item():.4f}, distance {score:.3f}", flush=True)


if __name__ == "__main__":
    main()
