"""A character-level transformer whose attention keeps its weights for a figure drawn on demand."""

import math
import time

import torch
import torch.nn as nn


class ProbedAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.maps = []

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)
        self.maps.append(weights.detach())  # feeds
        return self.proj((weights @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attention = ProbedAttention(dim, 2)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CharModel(nn.Module):
    def __init__(self, vocabulary=64, dim=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(depth)])
        self.out = nn.Linear(dim, vocabulary)

    def forward(self, tokens):
        return self.out(self.blocks(self.embed(tokens)))


def main():
    torch.manual_seed(0)
    model = CharModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(64, (50_000,))
    for step in range(700):
        starts = torch.randint(len(text) - 33, (16,))
        batch = torch.stack([text[s : s + 33] for s in starts.tolist()])
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, 64), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.008)
        if step % 100 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main()
