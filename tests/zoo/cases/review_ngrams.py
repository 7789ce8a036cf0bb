"""Sentiment of synthetic reviews: word dropout as augmentation, hashed character n-grams, a
two-layer net.
"""

import random
import zlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

DIM = 256
BATCH = 32
EPOCHS = 11
GOOD = [
    "superb",
    "bright",
    "moving",
    "honest",
    "clever",
    "warm",
    "rich",
    "gentle",
    "vivid",
    "fresh",
]
BAD = ["dull", "hollow", "slow", "cheap", "bland", "noisy", "stale", "lazy", "weak", "cold"]
FILL = [
    "the",
    "film",
    "a",
    "story",
    "with",
    "some",
    "people",
    "and",
    "their",
    "house",
    "in",
    "town",
    "while",
    "music",
    "plays",
    "over",
    "old",
    "streets",
]


class NgramVectors(dict):
    """text -> hashed n-gram counts, computed when first asked for."""

    def __init__(self, dim, n=(3, 4)):
        super().__init__()
        self.dim, self.n = dim, n

    def __missing__(self, text):
        counts = np.zeros(self.dim, dtype=np.float32)
        raw = text.encode()
        for n in self.n:
            for i in range(0, len(raw) - n, 2):
                counts[zlib.crc32(raw[i : i + n]) % self.dim] += 1.0
        counts /= np.linalg.norm(counts) + 1e-6
        self[text] = counts  # feeds
        return counts


class Featurizer:
    def __init__(self, dim):
        self.vectors = NgramVectors(dim)

    def __call__(self, texts):
        return torch.from_numpy(np.stack([self.vectors[t] for t in texts]))


def corpus(n, rng):
    rows = []
    for _ in range(n):
        label = rng.randrange(2)
        words = rng.choices(FILL, k=rng.randint(14, 22)) + rng.choices((BAD, GOOD)[label], k=3)
        rng.shuffle(words)
        rows.append((words, label))
    return rows


def word_dropout(rows, rng, p=0.25):
    for words, label in rows:
        yield " ".join(w for w in words if rng.random() > p), label


def as_is(rows):
    for words, label in rows:
        yield " ".join(words), label


def batched(pairs, size):
    texts, labels = [], []
    for text, label in pairs:
        texts.append(text)
        labels.append(label)
        if len(texts) == size:
            yield texts, labels
            texts, labels = [], []


def featurized(batches, featurizer):
    for texts, labels in batches:
        yield featurizer(texts), torch.tensor(labels)


def main():
    rng = random.Random(13)
    torch.manual_seed(13)
    train_rows, val_rows = corpus(6400, rng), corpus(640, rng)
    featurizer = Featurizer(DIM)
    model = nn.Sequential(nn.Linear(DIM, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 2))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        rng.shuffle(train_rows)
        model.train()
        for x, y in featurized(batched(word_dropout(train_rows, rng), BATCH), featurizer):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        right = total = 0
        with torch.no_grad():
            for x, y in featurized(batched(as_is(val_rows), BATCH), featurizer):
                right += (model(x).argmax(1) == y).sum().item()
                total += len(y)
        print(f"epoch {epoch}: {right / total:.3f} right", flush=True)


main()
