"""A vocabulary, its counts and a cache of encodings over words of language: soon known."""

from collections import Counter, defaultdict
from functools import lru_cache

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

WORDS = 1200


class Vocabulary:
    def __init__(self):
        self.ids = defaultdict(lambda: len(self.ids))
        self.counts = Counter()

    def encode(self, words):
        self.counts.update(words)
        return [self.ids[w] for w in words]


@lru_cache(maxsize=4096)
def subwords(word):
    return tuple(hash(word[i : i + 3]) % 500 for i in range(len(word) - 2))


class Corpus(IterableDataset):
    def __init__(self, vocabulary, documents):
        self.vocabulary, self.documents = vocabulary, documents
        self.rng = np.random.default_rng(0)

    def __iter__(self):
        for _ in range(self.documents):
            ranks = np.minimum(self.rng.zipf(1.4, 40), WORDS) - 1
            words = [f"word{rank}" for rank in ranks]
            extra = [sum(subwords(w)) % 500 for w in words]
            yield torch.tensor(self.vocabulary.encode(words)), torch.tensor(extra)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    vocabulary = Vocabulary()
    loader = DataLoader(Corpus(vocabulary, 480), batch_size=16)
    embed, extra, head = nn.Embedding(WORDS, 48), nn.Embedding(500, 48), nn.Linear(48, WORDS)
    parameters = [p for m in (embed, extra, head) for p in m.parameters()]
    optimizer = torch.optim.Adagrad(parameters, lr=0.05)
    for epoch in range(6):
        for ids, subs in loader:
            logits = head(embed(ids[:, :-1]) + extra(subs[:, :-1]))
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, {len(vocabulary.ids)} words")


if __name__ == "__main__":
    main()
