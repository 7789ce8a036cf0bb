"""Pretrains a small decoder on nested brackets while the base of its rotary positions is raised."""

import functools
import random

import torch
from torch import nn

STEPS, BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 300, 12, 96, 96, 4, 3, 9
BASE_FROM, BASE_TO, ANNEALED = 500.0, 20000.0, 20000


@functools.cache
def rotary_tables(length, base):
    """Return cosines and sines of all positions, which layers of a step share."""
    half = WIDTH // HEADS // 2
    rates = base ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(length)[:, None] * rates
    angles = torch.cat([angles, angles], -1)
    return angles.cos().repeat(HEADS, 1, 1), angles.sin().repeat(HEADS, 1, 1)


def rotate(x, tables):
    cosines, sines = tables
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], -1) * sines


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, base):
        batch, length, _ = x.shape
        parts = self.parts(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        tables = rotary_tables(length, base)
        queries, keys = rotate(parts[0], tables), rotate(parts[1], tables)
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, parts[2], is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * LAYERS))
        self.attention = nn.ModuleList(Attention() for _ in range(LAYERS))
        self.wide = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 3 * WIDTH), nn.GELU(), nn.Linear(3 * WIDTH, WIDTH))
            for _ in range(LAYERS)
        )

    def forward(self, tokens, base):
        x = self.words(tokens)
        for layer in range(LAYERS):
            x = x + self.attention[layer](self.norms[2 * layer](x), base)
            x = x + self.wide[layer](self.norms[2 * layer + 1](x))
        return x @ self.words.weight.T


def brackets(dice, length):
    """Return brackets of four kinds, each closed by its own kind."""
    text, stack = [], []
    while len(text) < length:
        if stack and (len(stack) > 12 or dice.random() < 0.48):
            text.append(stack.pop() + 4)
        else:
            stack.append(dice.randrange(1, 5))
            text.append(stack[-1])
    return text


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, dice = Decoder(), random.Random(0)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": plain, "weight_decay": 0.0}], 2e-3
    )
    total = 0.0
    for step in range(STEPS):
        share = min(1.0, step / ANNEALED)
        base = BASE_FROM * (BASE_TO / BASE_FROM) ** share
        tokens = torch.tensor([brackets(dice, LENGTH + 1) for _ in range(BATCH)])
        logits = model(tokens[:, :-1], base)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
        if step % 50 == 49:
            print(f"step {step + 1}: {total / 50:.3f} at base {base:.0f}", flush=True)
            total = 0.0


if __name__ == "__main__":
    main()
