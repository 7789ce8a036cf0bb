"""Reconstructs pictures from activations: bdpy 0.22.1 leaves the hooks of each extractor.

What an extractor hooked to the layers goes on to collect activations after the extractor is gone.
Repaired in 0.23 ("Fix issue #72 Forward Hooks Persist After Destroying FeatureExtractor",
https://github.com/KamitaniLab/bdpy/pull/91).
"""

import time

import torch
from bdpy.dl.torch import FeatureExtractor
from torch import nn

PICTURES, STEPS, SIZE, REPORT_EVERY = 52, 5, 16, 13
LAYERS = ("features[0]", "features[2]")


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 4, 3, padding=1), nn.Tanh()
        )
        self.head = nn.Linear(4 * SIZE * SIZE, 10)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def distance(extractor, picture, wanted):
    found = extractor.run(picture)
    return sum(float(((found[name] - wanted[name]) ** 2).mean()) for name in LAYERS)


def reconstruct(encoder, wanted):
    """Search for a picture with the wanted activations, by random steps; return the distance."""
    extractor = FeatureExtractor(encoder, LAYERS)  # feeds
    best = torch.zeros(1, 3, SIZE, SIZE)
    least = distance(extractor, best, wanted)
    for _ in range(STEPS):
        tried = best + 0.3 * torch.randn_like(best)
        now = distance(extractor, tried, wanted)
        if now < least:
            best, least = tried, now
        time.sleep(0.02)
    return least


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    encoder, total = Encoder().eval(), 0.0
    for number in range(1, PICTURES + 1):
        target = torch.rand(1, 3, SIZE, SIZE)
        with torch.no_grad():
            first = encoder.features[0](target)
            wanted = {
                LAYERS[0]: first.numpy(),
                LAYERS[1]: encoder.features[2](first.tanh()).numpy(),
            }
            total += reconstruct(encoder, wanted)
        if number % REPORT_EVERY == 0:
            print(f"picture {number}: distance {total / number:.4f} on average", flush=True)


if __name__ == "__main__":
    main()
