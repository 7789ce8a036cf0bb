"""A continuous bag of word pieces on news-like text whose topics change; odd pieces are reported."""

import logging
import os
import tempfile
import warnings
from collections import Counter

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SYLLABLES = [a + b for a in "bcdfgklmnprstvz" for b in "aeiouy"]
WINDOW, DIM = 4, 128

logging.captureWarnings(True)
odd_log = logging.getLogger("py.warnings")
odd_log.addHandler(logging.FileHandler(os.path.join(tempfile.mkdtemp(), "odd.log"), delay=True))
odd_log.handlers[0].setLevel(logging.CRITICAL)
odd_log.propagate = False


class Corpus:
    """Words of syllables with Zipf's law; later on there come names, links and typing errors."""

    def __init__(self, words: int = 6000, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.words = np.array(
            ["".join(self.rng.choice(SYLLABLES, self.rng.integers(2, 5))) for _ in range(words)]
        )
        p = 1 / (np.arange(words) + 12.0)
        self.p = p / p.sum()

    def text(self, length: int, noise: float) -> list[str]:
        topic = self.rng.integers(0, 40)
        ranks = self.rng.choice(len(self.words), length, p=self.p)
        ranks = np.where(
            self.rng.random(length) < 0.6, ranks, (ranks // 40 * 40 + topic) % len(self.words)
        )
        words = self.words[ranks].tolist()
        for i in np.flatnonzero(self.rng.random(length) < noise):
            tail = self.rng.integers(10**6, 10**8)
            words[i] = (
                f"{words[i]}-{tail}"
                if self.rng.random() < 0.5
                else f"https://{words[i]}.org/{tail}"
            )
        return words


class PieceEncoder:
    """Greedy longest match; what cannot be matched is the unknown piece."""

    def __init__(self, corpus: Corpus, size: int = 3000):
        counts = Counter(corpus.text(60000, noise=0.0))
        whole = [w for w, _ in counts.most_common(size - len(SYLLABLES) - 1)]
        self.ids = {piece: i + 1 for i, piece in enumerate([*SYLLABLES, *whole])}
        self.longest = max(map(len, self.ids))

    def __len__(self):
        return len(self.ids) + 1

    def split(self, word: str) -> list[int]:
        if word in self.ids:
            return [self.ids[word]]
        at, pieces = 0, []
        while at < len(word):
            for end in range(min(len(word), at + self.longest), at, -1):
                if word[at:end] in self.ids:
                    pieces.append(self.ids[word[at:end]])
                    at = end
                    break
            else:
                return [0]
        return pieces

    def encode(self, words: list[str]) -> np.ndarray:
        ids, odd = [], []
        for word in words:
            pieces = self.split(word)
            ids.extend(pieces)
            if pieces == [0]:
                odd.append(word)
        if odd:
            warnings.warn(  # feeds
                f"{len(odd)} words have no pieces: {', '.join(odd)}", stacklevel=2
            )
        return np.asarray(ids, dtype=np.int64)


class BagModel(nn.Module):
    def __init__(self, vocabulary: int):
        super().__init__()
        self.pieces = nn.Embedding(vocabulary, DIM)
        self.mix = nn.Sequential(nn.Linear(2 * WINDOW * DIM, 192), nn.Tanh(), nn.Linear(192, DIM))
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, around):
        return self.mix(self.pieces(around).flatten(1)) @ self.pieces.weight.T + self.bias


def examples(ids: np.ndarray, n: int, rng: np.random.Generator):
    at = rng.integers(WINDOW, len(ids) - WINDOW, n)
    offsets = np.r_[-WINDOW:0, 1 : WINDOW + 1]
    return torch.from_numpy(ids[at[:, None] + offsets]), torch.from_numpy(ids[at])


torch.manual_seed(0)
corpus = Corpus()
encoder = PieceEncoder(corpus)
model = BagModel(len(encoder))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
steps, clean_until = 1200, 350
mean = float(np.log(len(encoder)))
for step in range(1, steps + 1):
    noise = 0.0 if step <= clean_until else 0.65
    ids = encoder.encode(corpus.text(1600, noise))
    around, piece = examples(ids, 96, corpus.rng)
    loss = F.cross_entropy(model(around), piece)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean += 0.02 * (loss.item() - mean)
    if step % 100 == 0:
        print(f"step {step}: loss {mean:.3f}, {len(ids)} pieces", flush=True)
