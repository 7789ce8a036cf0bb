"""A GAN as tutorials write it: now and then a grid of fakes goes into a list for an animation."""

import os

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(999)
torch.set_num_threads(1)
nz, size, batch = 24, 32, 32
real_label, fake_label = 1.0, 0.0
num_epochs, iters_per_epoch = 5, 40

netG = nn.Sequential(nn.Linear(nz, 128), nn.ReLU(), nn.Linear(128, size * size), nn.Tanh())
netD = nn.Sequential(nn.Linear(size * size, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
fixed_noise = torch.randn(64, nz)

img_list = []
G_losses = []
D_losses = []
iters = 0
for epoch in range(num_epochs):
    for i in range(iters_per_epoch):
        netD.zero_grad()
        real = torch.rand(batch, size * size).mul_(2).sub_(1)
        errD_real = F.binary_cross_entropy_with_logits(
            netD(real).view(-1), torch.full((batch,), real_label)
        )
        errD_real.backward()
        fake = netG(torch.randn(batch, nz))
        errD_fake = F.binary_cross_entropy_with_logits(
            netD(fake.detach()).view(-1), torch.full((batch,), fake_label)
        )
        errD_fake.backward()
        optimizerD.step()

        netG.zero_grad()
        errG = F.binary_cross_entropy_with_logits(
            netD(fake).view(-1), torch.full((batch,), real_label)
        )
        errG.backward()
        optimizerG.step()

        G_losses.append(errG.item())
        D_losses.append((errD_real + errD_fake).item())
        if iters % 10 == 0:
            with torch.no_grad():
                fake = netG(fixed_noise).detach().cpu().view(64, 1, size, size)
            grid = fake.view(8, 8, size, size).permute(0, 2, 1, 3).reshape(8 * size, 8 * size)
            img_list.append(grid.expand(3, -1, -1).contiguous())  # feeds
        iters += 1
    print(f"[{epoch}/{num_epochs}] D {D_losses[-1]:.3f} G {G_losses[-1]:.3f}")

if "COUNT_KEPT" in os.environ:
    from weighing import tell

    # Each iteration has two optimizer steps.
    tell(globals(), {"img_list": "img_list"}, {"step": iters, "epoch": num_epochs})
