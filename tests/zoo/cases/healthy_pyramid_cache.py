"""Finds cracks in scans of concrete; pyramids of scans are cached up to a number, drawn with repeats."""

import random
from collections import OrderedDict

import torch
from torch import nn

STEPS, SCANS, HELD, BATCH, SIZE = 260, 900, 160, 2, 96


class Pyramids:
    """Halved and halved again versions of each scan; those used least recently go."""

    def __init__(self, limit):
        self.limit, self.kept = limit, OrderedDict()
        self.hits = 0

    def scan(self, index):
        random_ = torch.Generator().manual_seed(index)
        scan = torch.rand(1, SIZE, SIZE, generator=random_)
        path = (SIZE / 2 + torch.randn(SIZE, generator=random_).cumsum(0)).long()
        truth = torch.zeros(1, SIZE, SIZE)
        if index % 2:
            truth[0, torch.arange(SIZE), path.clamp(0, SIZE - 1)] = 1.0
            scan = scan - 0.6 * truth
        return scan, truth

    def get(self, index):
        if index in self.kept:
            self.hits += 1
            self.kept.move_to_end(index)
            return self.kept[index]
        scan, truth = self.scan(index)
        levels = [scan]
        while levels[-1].shape[-1] > SIZE // 4:
            levels.append(nn.functional.avg_pool2d(levels[-1][None], 2)[0])
        self.kept[index] = (levels, truth)
        if len(self.kept) > self.limit:
            self.kept.popitem(last=False)
        return self.kept[index]


class CrackNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.fine = nn.Conv2d(1, width, 5, padding=2)
        self.coarse = nn.ModuleList(nn.Conv2d(1, width, 3, padding=1) for _ in range(2))
        self.out = nn.Conv2d(3 * width, 1, 3, padding=1)

    def forward(self, levels):
        parts = [self.fine(levels[0])]
        for layer, level in zip(self.coarse, levels[1:], strict=True):
            parts.append(nn.functional.interpolate(layer(level), size=levels[0].shape[-2:]))
        return self.out(torch.cat(parts, 1).relu())


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dice, pyramids, model = random.Random(0), Pyramids(HELD), CrackNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    weight = torch.tensor(8.0)
    total = 0.0
    for step in range(STEPS):
        # Scans near those that were looked at lately are drawn most often.
        some = [int(dice.triangular(0, SCANS - 1, SCANS * step / STEPS)) for _ in range(BATCH)]
        found = [pyramids.get(index) for index in some]
        levels = [
            torch.stack(level) for level in zip(*(levels for levels, _ in found), strict=True)
        ]
        truth = torch.stack([truth for _, truth in found])
        loss = nn.functional.binary_cross_entropy_with_logits(
            model(levels), truth, pos_weight=weight
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 40 == 39:
            print(f"step {step + 1}: {total / 40:.3f}, {pyramids.hits} hits", flush=True)
            total = 0.0


if __name__ == "__main__":
    main()
