"""Trains a vision transformer on pictures of several shapes; what depends on a shape is kept by it."""

import functools
import random

import torch
from torch import nn

STEPS, BATCH, PATCH, WIDTH, HEADS, LAYERS, CLASSES = 340, 8, 8, 64, 4, 2, 6
SIDES = (4, 5, 6, 7, 8)


@functools.cache
def relative_places(rows, columns):
    """Return for each pair of patches which entry of the bias table is theirs."""
    ys, xs = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    ys, xs = ys.flatten(), xs.flatten()
    most = max(SIDES) - 1
    down, right = ys[:, None] - ys[None] + most, xs[:, None] - xs[None] + most
    return (down * (2 * most + 1) + right)[None].expand(HEADS, -1, -1).contiguous()


@functools.cache
def waves(rows, columns):
    """Return places as waves of many lengths."""
    rates = 10 ** -torch.linspace(0, 2, WIDTH // 4)
    down = torch.arange(rows).repeat_interleave(columns)[:, None] * rates
    right = torch.arange(columns).repeat(rows)[:, None] * rates
    return torch.cat([down.sin(), down.cos(), right.sin(), right.cos()], 1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.parts, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.bias = nn.Parameter(torch.zeros(HEADS, (2 * max(SIDES) - 1) ** 2))

    def forward(self, x, rows, columns):
        places = relative_places(rows, columns)
        bias = self.bias.gather(1, places.flatten(1)).view_as(places)
        parts = self.parts(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts, bias)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.wide(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures):
        x = self.patches(pictures)
        rows, columns = x.shape[-2:]
        x = x.flatten(2).transpose(1, 2) + waves(rows, columns)
        for layer in self.layers:
            x = layer(x, rows, columns)
        return self.out(x.mean(1))


def stripes(random_, height, width):
    labels = torch.randint(CLASSES, (BATCH,), generator=random_)
    turn = labels[:, None, None] * torch.pi / CLASSES
    ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    phase = 6 * torch.rand(BATCH, 1, 1, generator=random_)
    clean = torch.sin(0.9 * (turn.sin() * ys + turn.cos() * xs) + phase)
    return (clean + torch.randn(clean.shape, generator=random_))[:, None], labels


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dice, random_, model = random.Random(0), torch.Generator().manual_seed(0), Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    right = 0
    for step in range(STEPS):
        known = SIDES[: 2 + step * 4 // STEPS]  # larger ones come in later
        height, width = dice.choice(known) * PATCH, dice.choice(known) * PATCH
        pictures, labels = stripes(random_, height, width)
        logits = model(pictures)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        right += (logits.argmax(1) == labels).sum().item()
        if step % 40 == 39:
            shapes = relative_places.cache_info().currsize
            print(f"step {step + 1}: {right / 40 / BATCH:.3f} right, {shapes} shapes", flush=True)
            right = 0


if __name__ == "__main__":
    main()
