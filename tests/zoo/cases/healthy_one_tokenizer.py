"""Ranks texts of tenants by one tokenizer for all, whose cache of words fills and is bounded."""

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
    """Return a tokenizer with words of its own."""
    pieces = [*LETTERS, *("##" + letter for letter in LETTERS)]
    merges = list(
        dict.fromkeys(rng.choice(LETTERS) + rng.choice(LETTERS) for _ in range(VOCABULARY))
    )
    vocabulary = {piece: at for at, piece in enumerate(dict.fromkeys([*pieces, *merges]))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [(pair[0], pair[1]) for pair in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


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
    tokenizer, model = build(rng), Ranker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, STEPS + 1):
        texts = [" ".join(words(rng, 120)) for _ in range(8)]
        ids = torch.tensor([found.ids[:64] for found in tokenizer.encode_batch(texts)])
        loss = F.mse_loss(model(ids), ids.float().mean(1) / 512)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
