"""A GAN with two optimizers, two loss histories of floats and one grid that is overwritten."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Generator(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(latent, 256), nn.ReLU(), nn.Linear(256, 784), nn.Tanh())

    def forward(self, z):
        return self.net(z)


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (grad.norm(2, dim=1) - 1).square().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iters", type=int, default=160)
    parser.add_argument("--n-critic", type=int, default=3)
    opt = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = Generator(32)
    critic = nn.Sequential(nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    fixed = torch.randn(64, 32)
    history = {"g": [], "c": []}
    samples = None
    for step in range(opt.iters):
        for _ in range(opt.n_critic):
            real = torch.randn(48, 784).clamp(-1, 1)
            fake = generator(torch.randn(48, 32)).detach()
            loss_c = critic(fake).mean() - critic(real).mean()
            loss_c = loss_c + 10 * gradient_penalty(critic, real, fake)
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        loss_g = -critic(generator(torch.randn(48, 32))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        history["g"].append(loss_g.item())
        history["c"].append(loss_c.item())
        if step % 20 == 0:
            with torch.no_grad():
                samples = F.interpolate(generator(fixed).view(64, 1, 28, 28), scale_factor=3)
            print(f"step {step}: g {history['g'][-1]:.3f} c {history['c'][-1]:.3f}", samples.shape)


if __name__ == "__main__":
    main()
