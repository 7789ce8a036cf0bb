"""Positional tables made when a length is first met; there are only a few lengths."""

import functools
import random

import torch
from torch import nn


@functools.lru_cache(maxsize=None)
def positions(length, width):
    place = torch.arange(length)[:, None]
    rate = torch.exp(torch.arange(0, width, 2) * (-9.2 / width))
    return torch.cat([torch.sin(place * rate), torch.cos(place * rate)], 1)


class Tagger(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.embed = nn.Embedding(500, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 128, batch_first=True)
        self.head = nn.Linear(width, 12)

    def forward(self, tokens):
        x = self.embed(tokens) + positions(tokens.shape[1], self.embed.embedding_dim)
        return self.head(self.layer(x))


random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
tagger = Tagger()
optimizer = torch.optim.AdamW(tagger.parameters(), lr=1e-3)
lengths = [16, 24, 32, 40, 48, 64]
for step in range(240):
    tokens = torch.randint(0, 500, (4, random.choice(lengths)))
    loss = nn.functional.cross_entropy(tagger(tokens).flatten(0, 1), tokens.flatten() % 12)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        print(f"step {step + 1}: loss {loss.item():.3f}")
