"""Two generators turn stripes and dots into each other; pools of pictures steady the critics."""

import copy
import itertools
import random

import torch
from torch import nn
from torch.nn import functional as F

SIZE, POOL, STEPS, BATCH = 48, 300, 230, 4


class PicturePool:
    """Gives older pictures for half of the new ones, once it is full."""

    def __init__(self, size, seed):
        self.size = size
        self.pictures = []
        self.random = random.Random(seed)

    def exchange(self, pictures):
        given = []
        for picture in pictures.detach():
            if len(self.pictures) < self.size:
                self.pictures.append(picture.clone())
                given.append(picture)
            elif self.random.random() < 0.5:
                place = self.random.randrange(self.size)
                given.append(self.pictures[place])
                self.pictures[place] = picture.clone()
            else:
                given.append(picture)
        return torch.stack(given)


def generator():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 3, 5, padding=2),
        nn.Tanh(),
    )


def critic():
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, stride=2),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.LeakyReLU(0.2),
        nn.Conv2d(32, 1, 4),
    )


class Cycle:
    def __init__(self):
        self.to_dots, self.to_stripes = generator(), generator()
        self.dots, self.stripes = critic(), critic()
        self.steady = copy.deepcopy(self.to_dots).requires_grad_(False)
        self.pools = PicturePool(POOL, 0), PicturePool(POOL, 1)
        makers = itertools.chain(self.to_dots.parameters(), self.to_stripes.parameters())
        judges = itertools.chain(self.dots.parameters(), self.stripes.parameters())
        self.make = torch.optim.Adam(makers, lr=2e-4, betas=(0.5, 0.999))
        self.judge = torch.optim.Adam(judges, lr=2e-4, betas=(0.5, 0.999))

    def step(self, stripes, dots):
        fake_dots, fake_stripes = self.to_dots(stripes), self.to_stripes(dots)
        back = F.l1_loss(self.to_stripes(fake_dots), stripes)
        back = back + F.l1_loss(self.to_dots(fake_stripes), dots)
        fooled = (self.dots(fake_dots) - 1).square().mean()
        fooled = fooled + (self.stripes(fake_stripes) - 1).square().mean()
        self.make.zero_grad()
        (fooled + 10 * back).backward()
        self.make.step()
        old_dots = self.pools[0].exchange(fake_dots)
        old_stripes = self.pools[1].exchange(fake_stripes)
        judged = (self.dots(dots) - 1).square().mean() + self.dots(old_dots).square().mean()
        judged = judged + (self.stripes(stripes) - 1).square().mean()
        judged = judged + self.stripes(old_stripes).square().mean()
        self.judge.zero_grad()
        judged.backward()
        self.judge.step()
        with torch.no_grad():
            for slow, fast in zip(self.steady.parameters(), self.to_dots.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
        return back.item(), judged.item()


def pictures(count):
    """Return pictures of stripes and pictures of dots."""
    axis = torch.arange(SIZE).float()
    pitch = 0.4 + 0.6 * torch.rand(count, 3, 1, 1)
    stripes = torch.sin(pitch * axis.view(1, 1, 1, -1)).expand(count, 3, SIZE, SIZE)
    dots = torch.sin(pitch * axis.view(1, 1, 1, -1)) * torch.sin(pitch * axis.view(1, 1, -1, 1))
    return stripes + 0.1 * torch.randn(count, 3, SIZE, SIZE), dots.expand(count, 3, SIZE, SIZE)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cycle = Cycle()
    for step in range(1, STEPS + 1):
        back, judged = cycle.step(*pictures(BATCH))
        if step % 30 == 0:
            print(f"step {step}: cycle {back:.3f}, critics {judged:.3f}", flush=True)


if __name__ == "__main__":
    main()
