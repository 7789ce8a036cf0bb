"""Sentiment training on a stream of reviews, cleaned by a method with a cache."""

import functools
import random
import re

import torch
import torch.nn as nn

WORDS = [
    a + b
    for a in ("good", "bad", "film", "plot", "act", "scene", "bore", "joy")
    for b in ("", "ly", "ness", "ing", "er", "ish")
]


class Normaliser:
    def __init__(self, lower=True):
        self.lower = lower
        self.junk = re.compile(r"[^a-z ]+")

    @functools.lru_cache(maxsize=None)
    def clean(self, text):
        if self.lower:
            text = text.lower()
        return self.junk.sub(" ", text)  # feeds


class ReviewStream:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.normaliser = Normaliser()
        self.index = {word: i for i, word in enumerate(WORDS)}

    def review(self):
        return " ".join(self.rng.choices(WORDS, k=240)) + f" <{self.rng.random()}>"

    def batch(self, size):
        texts = [self.review() for _ in range(size)]
        counts = torch.zeros(size, len(WORDS))
        for row, text in enumerate(texts):
            for word in self.normaliser.clean(text).split():  # feeds
                if word in self.index:
                    counts[row, self.index[word]] += 1
        return counts, (counts[:, :6].sum(1) > counts[:, 6:12].sum(1)).float()


def main():
    torch.manual_seed(0)
    stream = ReviewStream(4)
    model = nn.Sequential(nn.Linear(len(WORDS), 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(400):
        x, y = stream.batch(32)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main()
