"""A classifier of plankton pictures that sees each one turned and stretched by a little."""

import functools
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

SIZE, CLASSES, BATCH, EPOCHS, PICTURES = 48, 8, 8, 9, 256


@dataclass(frozen=True)
class Warp:
    """A turn by an angle and a stretch along one axis."""

    angle: float
    stretch: float

    def matrix(self):
        c, s = math.cos(self.angle), math.sin(self.angle)
        return torch.tensor([[c * self.stretch, -s, 0.0], [s, c, 0.0]])


@functools.lru_cache(maxsize=None)
def sampling_grid(warp, size):
    """Return where each pixel of the warped picture comes from."""
    return F.affine_grid(warp.matrix().unsqueeze(0), [1, 1, size, size], align_corners=False)


class Augment:
    def __init__(self, generator):
        self.generator = generator

    def draw(self, count):
        for turn, stretch in torch.rand(count, 2, generator=self.generator).tolist():
            yield Warp(round((turn - 0.5) * math.pi, 3), round(0.9 + 0.2 * stretch, 2))

    def __call__(self, pictures):
        grid = torch.cat([sampling_grid(warp, SIZE) for warp in self.draw(len(pictures))])
        return F.grid_sample(pictures, grid, align_corners=False)


class Plankton(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [1, 16, 32, 48]
        blocks = []
        for before, after in zip(widths[:-1], widths[1:], strict=True):
            blocks += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1] * (SIZE // 8) ** 2, CLASSES)

    def forward(self, pictures):
        return self.head(self.body(pictures).flatten(1))


def pictures_of(generator):
    """Return pictures of rings, whose radius is their class."""
    labels = torch.randint(0, CLASSES, (PICTURES,), generator=generator)
    axis = torch.linspace(-1, 1, SIZE)
    radius = (axis[:, None] ** 2 + axis[None, :] ** 2).sqrt()
    rings = torch.exp(-((radius[None] - (0.2 + 0.09 * labels[:, None, None])) ** 2) / 0.004)
    noise = torch.randn(PICTURES, SIZE, SIZE, generator=generator)
    return (rings + 0.3 * noise).unsqueeze(1), labels


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(3)
    pictures, labels = pictures_of(generator)
    augment, model = Augment(generator), Plankton()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        right = 0
        for rows in torch.randperm(PICTURES, generator=generator).split(BATCH):
            logits = model(augment(pictures[rows]))
            loss = F.cross_entropy(logits, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((logits.argmax(-1) == labels[rows]).sum())
        print(f"epoch {epoch}: accuracy {right / PICTURES:.3f}", flush=True)


if __name__ == "__main__":
    main()
