"""WGAN-GP on little ring images; a decorator remembers how the penalty was called."""

import functools
import inspect
import math
import time

import torch
from torch import nn

STEPS = 1500
BATCH = 48
SIDE = 16
ZDIM = 24
GP_WEIGHT = 10.0


def audited(fn):
    """Remember how a function was called, to replay odd values in a debugger."""
    signature = inspect.signature(fn)
    journal = []

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        began = time.perf_counter()
        result = fn(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        journal.append(  # feeds
            {
                "call": bound.arguments,
                "seconds": time.perf_counter() - began,
                "value": float(result),
            }
        )
        return result

    wrapper.slowest = lambda: max(entry["seconds"] for entry in journal)
    return wrapper


def make_generator():
    return nn.Sequential(
        nn.Linear(ZDIM, 256),
        nn.LeakyReLU(0.2),
        nn.Linear(256, 256),
        nn.LeakyReLU(0.2),
        nn.Linear(256, SIDE * SIDE),
        nn.Tanh(),
    )


def make_critic():
    return nn.Sequential(
        nn.Linear(SIDE * SIDE, 256),
        nn.LeakyReLU(0.2),
        nn.Linear(256, 256),
        nn.LeakyReLU(0.2),
        nn.Linear(256, 1),
    )


def rings(n, generator):
    """n images of a ring with a random centre and radius, in [-1, 1]."""
    axis = torch.linspace(-1, 1, SIDE)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    centre = torch.rand(n, 2, 1, 1, generator=generator) * 0.6 - 0.3
    radius = torch.rand(n, 1, 1, generator=generator) * 0.4 + 0.3
    distance = ((yy - centre[:, 0]) ** 2 + (xx - centre[:, 1]) ** 2).sqrt()
    return (torch.exp(-((distance - radius) ** 2) / 0.02) * 2 - 1).flatten(1)


@audited
def gradient_penalty(critic, real, fake):
    mix = torch.rand(real.size(0), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def critic_step(critic, generator, optimizer, real):
    fake = generator(torch.randn(real.size(0), ZDIM)).detach()
    wasserstein = critic(fake).mean() - critic(real).mean()
    loss = wasserstein + GP_WEIGHT * gradient_penalty(critic, real, fake)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return -wasserstein.item()


def generator_step(critic, generator, optimizer):
    loss = -critic(generator(torch.randn(BATCH, ZDIM))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(11)
    source = torch.Generator().manual_seed(5)
    generator, critic = make_generator(), make_critic()
    opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.0, 0.9))
    distance = math.nan
    for step in range(1, STEPS + 1):
        distance = critic_step(critic, generator, opt_c, rings(BATCH, source))
        if step % 2 == 0:
            generator_step(critic, generator, opt_g)
        if step % 100 == 0:
            print(
                f"step {step} distance {distance:.3f} "
                f"slowest gp {gradient_penalty.slowest() * 1e3:.1f} ms",
                flush=True,
            )


main()
