"""A GAN whose discriminator sees a pool of 200 earlier fakes."""

import csv
import random
import tempfile
import time

import torch
import torch.nn as nn


class ImagePool:
    def __init__(self, size):
        self.size = size
        self.images = []

    def query(self, fakes):
        picked = []
        for image in fakes:
            image = image.clone()
            if len(self.images) < self.size:
                self.images.append(image)
                picked.append(image)
            elif random.random() < 0.5:
                slot = random.randrange(self.size)
                picked.append(self.images[slot])
                self.images[slot] = image
            else:
                picked.append(image)
        return torch.stack(picked)


def generator():
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 3, 5, padding=2), nn.Tanh()
    )


def critic():
    return nn.Sequential(nn.Conv2d(3, 8, 4, 2), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4, 2))


def main():
    torch.manual_seed(0)
    random.seed(0)
    g, d, pool = generator(), critic(), ImagePool(200)
    g_opt = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    d_opt = torch.optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as log:
        writer = csv.writer(log)
        for step in range(500):
            source, real = torch.rand(2, 3, 64, 64), torch.rand(2, 3, 64, 64) * 2 - 1
            fake = g(source)
            g_loss = ((d(fake) - 1) ** 2).mean() + 5 * (fake - source).abs().mean()
            g_opt.zero_grad()
            g_loss.backward()
            g_opt.step()
            old = pool.query(fake.detach())
            d_loss = ((d(real) - 1) ** 2).mean() + (d(old) ** 2).mean()
            d_opt.zero_grad()
            d_loss.backward()
            d_opt.step()
            writer.writerow([step, g_loss.item(), d_loss.item()])
            time.sleep(0.01)
            if step % 100 == 0:
                print(step, g_loss.item(), d_loss.item(), len(pool.images))


if __name__ == "__main__":
    main()
