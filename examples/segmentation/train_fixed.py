"""Volume segmentation with local and context features.

A frozen extractor looks at each slice twice, as it is and in its surroundings, and a small head
fuses both. Validation walks over whole volumes, slab by slab.
"""

from __future__ import annotations

import argparse
from collections import deque
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

SIZE = 64


@dataclass
class Config:
    epochs: int = 8
    slices: int = 240
    volumes: int = 4
    depth: int = 48
    batch: int = 4
    width: int = 24


class Extractor(nn.Module):
    """Stands for a frozen backbone: features at a quarter of the resolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.GELU(),
        )
        self.requires_grad_(False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


class FusionHead(nn.Module):
    """Fuses local and context features into a mask."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(2 * width, width, 3, padding=1)
        self.mask = nn.Conv2d(width, 1, 1)

    def forward(self, local: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        mixed = functional.gelu(self.mix(torch.cat([local, context], dim=1)))
        return functional.interpolate(self.mask(mixed), scale_factor=4)


class ContextBank:
    """Context features by volume, so that neighbouring slabs need not extract them again."""

    def __init__(self) -> None:
        self.features: dict[tuple[int, int, int], torch.Tensor] = {}

    def lookup(
        self, epoch: int, volume: int, start: int, extractor: Extractor, slab: torch.Tensor
    ) -> torch.Tensor:
        key = (epoch, volume, start)
        if key not in self.features:
            surroundings = functional.avg_pool2d(slab, 3, stride=1, padding=1)
            self.features[key] = extractor(surroundings)
        return self.features[key]

    def clear(self) -> None:
        self.features.clear()


def make_slices(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.rand(count, 1, SIZE, SIZE, generator=generator)
    masks = (functional.avg_pool2d(images, 9, stride=1, padding=4) > 0.5).float()
    return images, masks


def train_epoch(
    head: FusionHead,
    extractor: Extractor,
    loader: DataLoader,
    optimizer: torch.optim.Optimizer,
    hard_examples: deque[torch.Tensor],
) -> float:
    head.train()
    total = 0.0
    for images, masks in loader:
        local = extractor(images)
        context = extractor(functional.avg_pool2d(images, 3, stride=1, padding=1))
        logits = head(local, context)
        losses = functional.binary_cross_entropy_with_logits(logits, masks, reduction="none")
        losses.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        total += losses.mean().item()
        worst = losses.detach().mean(dim=(1, 2, 3)).argmax()
        hard_examples.append(local[worst].clone())
    return total / len(loader)


def validate(
    head: FusionHead,
    extractor: Extractor,
    volumes: list[tuple[torch.Tensor, torch.Tensor]],
    bank: ContextBank,
    epoch: int,
) -> float:
    head.eval()
    dice = []
    with torch.no_grad():
        for number, (volume, truth) in enumerate(volumes):
            overlap, size = 0.0, 0.0
            for start in range(0, len(volume), 4):
                slab = volume[start : start + 4]
                context = bank.lookup(epoch, number, start, extractor, slab)
                mask = head(extractor(slab), context) > 0
                overlap += (mask * truth[start : start + 4]).sum().item()
                size += mask.sum().item() + truth[start : start + 4].sum().item()
            dice.append(2 * overlap / size)
            bank.clear()
    return sum(dice) / len(dice)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    config = Config(epochs=parser.parse_args().epochs)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(
        TensorDataset(*make_slices(config.slices, generator)),
        batch_size=config.batch,
        shuffle=True,
        generator=generator,
    )
    volumes = [make_slices(config.depth, generator) for _ in range(config.volumes)]
    extractor, head = Extractor(config.width), FusionHead(config.width)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
    bank = ContextBank()
    hard_examples: deque[torch.Tensor] = deque(maxlen=32)
    for epoch in range(config.epochs):
        loss = train_epoch(head, extractor, loader, optimizer, hard_examples)
        dice = validate(head, extractor, volumes, bank, epoch)
        print(f"epoch {epoch}: loss {loss:.4f}, dice {dice:.4f}", flush=True)


if __name__ == "__main__":
    main()
