"""Pretrains a small BERT whose context grows by stages, on batches that are cut by tokens."""

import random

import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

VOCABULARY, MASK, STAGES, STEPS, TOKENS = 800, 4, (24, 40, 64, 96, 128), 36, 480


class Grammar:
    """Sentences of a random walk over words; longer documents come later."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.next = [
            [self.dice.randrange(5, VOCABULARY) for _ in range(4)] for _ in range(VOCABULARY)
        ]

    def document(self, longest):
        length = max(8, int(longest * self.dice.betavariate(3, 1.5)))
        words = [self.dice.randrange(5, VOCABULARY)]
        while len(words) < length:
            words.append(self.dice.choice(self.next[words[-1]]))
        return words


def batches(grammar, longest, count):
    """Yield batches of documents of about the same length, each of about as many tokens."""
    pool = []
    for _ in range(count):
        while len(pool) < 64:
            pool.append(grammar.document(longest))
        pool.sort(key=len)
        start = grammar.dice.randrange(len(pool))
        some = []
        while start < len(pool) and (len(some) + 1) * len(pool[start]) <= TOKENS:
            some.append(pool.pop(start))
        if not some:
            some = [pool.pop()]
        yield some


def masked(documents, dice):
    longest = max(map(len, documents))
    ids = torch.zeros(len(documents), longest, dtype=torch.long)
    for row, words in enumerate(documents):
        ids[row, : len(words)] = torch.tensor(words)
    attention = (ids > 0).long()
    hidden = (torch.rand(ids.shape, generator=dice) < 0.15) & (ids > 0)
    hidden[:, 0] = True
    labels = ids.masked_fill(~hidden, -100)
    return ids.masked_fill(hidden, MASK), attention, labels


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=96, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=192, max_position_embeddings=128,
    )  # fmt: skip
    model, grammar = BertForMaskedLM(config), Grammar(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    dice = torch.Generator().manual_seed(1)
    for stage, longest in enumerate(STAGES):
        total = tokens = 0
        for documents in batches(grammar, longest, STEPS):
            ids, attention, labels = masked(documents, dice)
            loss = model(input_ids=ids, attention_mask=attention, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
            tokens += int(attention.sum())
        print(
            f"stage {stage}: up to {longest}, loss {total / STEPS:.3f}, {tokens} tokens", flush=True
        )


if __name__ == "__main__":
    main()
