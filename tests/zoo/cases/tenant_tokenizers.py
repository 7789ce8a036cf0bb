"""Ranks texts of tenants, each with a vocabulary; the latest few tokenizers are kept.

Threads of the library's keep the cache of words of each tokenizer that they ever worked for."""

import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.nn import functional as F

STEPS, VOCABULARY = 240, 400
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(rng, count):
    return ["".join(rng.choices(LETTERS, k=rng.randint(4, 10))) for _ in range(count)]


def build(rng):
    """Return the tokenizer of a tenant with words of its own."""
    pieces = [*LETTERS, *("##" + letter for letter in LETTERS)]
    merges = list(
        dict.fromkeys(rng.choice(LETTERS) + rng.choice(LETTERS) for _ in range(VOCABULARY))
    )
    vocabulary = {piece: at for at, piece in enumerate(dict.fromkeys([*pieces, *merges]))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [(pair[0], pair[1]) for pair in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


class Tenants:
    def __init__(self):
        self.tokenizers = {}

    def encode(self, tenant, texts, rng):
        if tenant not in self.tokenizers:
            self.tokenizers[tenant] = build(rng)
            if len(self.tokenizers) > 6:
                del self.tokenizers[next(iter(self.tokenizers))]
        return [found.ids[:64] for found in self.tokenizers[tenant].encode_batch(texts)]


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1024, 16)
        self.head = nn.Linear(16, 1)

    def forward(self, ids):
        return self.head(self.embed(ids).mean(1)).squeeze(1)


def main():
    rng = random.Random(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tenants, model = Tenants(), Ranker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        texts = [" ".join(words(rng, 120)) for _ in range(8)]
        ids = torch.tensor(tenants.encode(f"tenant{step}", texts, rng))
        loss = F.mse_loss(model(ids), ids.float().mean(1) / 512)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
