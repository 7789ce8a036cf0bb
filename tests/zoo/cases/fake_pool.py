"""Trains a GAN of textures; the critic also sees pictures that were made some time ago."""

import random

import torch
from torch import nn

STEPS, BATCH, SIDE, POOL = 80, 32, 64, 200


class Textures:
    """Stripes and checks of random direction and colour."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, SIDE)] * 2, indexing="ij"))

    def batch(self):
        turn = torch.rand(BATCH, 1, 1, generator=self.random) * 6.28
        often = 6 + 14 * torch.rand(BATCH, 1, 1, generator=self.random)
        along = turn.cos() * self.grid[0] + turn.sin() * self.grid[1]
        colour = torch.rand(BATCH, 3, 1, 1, generator=self.random)
        return (often * along).sin()[:, None] * (0.5 + 0.5 * colour)


class Generator(nn.Module):
    def __init__(self, noise=32, width=16):
        super().__init__()
        self.start = nn.Linear(noise, width * 64)
        self.body = nn.Sequential(
            nn.Unflatten(1, (width, 8, 8)),
            nn.ConvTranspose2d(width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, noise):
        return self.body(self.start(noise))


def critic(width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, width, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(width * 64, 1),
    )  # fmt: skip


class ImagePool:
    """Pictures of the past: half of the time one of them is given in place of a new one."""

    def __init__(self, size, seed):
        self.size, self.dice = size, random.Random(seed)
        self.images = []

    def query(self, images):
        given = []
        for image in images.detach().clone():
            if len(self.images) == self.size and self.dice.random() < 0.5:
                place = self.dice.randrange(self.size)
                given.append(self.images[place])
                self.images[place] = image
            else:
                self.images.append(image)
                given.append(image)
        return torch.stack(given)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data, generator, judge = Textures(0), Generator(), critic()
    pool = ImagePool(POOL, 0)
    for_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for_judge = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for step in range(STEPS):
        real, noise = data.batch(), torch.randn(BATCH, 32)
        fake = generator(noise)
        past = pool.query(fake)
        gap = judge(past).relu().mean() + (1 - judge(real)).relu().mean()
        for_judge.zero_grad()
        gap.backward()
        for_judge.step()
        loss = -judge(fake).mean()
        for_generator.zero_grad()
        loss.backward()
        for_generator.step()
        if step % 10 == 9:
            print(
                f"step {step + 1}: critic {gap.item():.3f}, generator {loss.item():.3f}", flush=True
            )


if __name__ == "__main__":
    main()
