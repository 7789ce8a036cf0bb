"""Mixes documents of several sources into training batches for a tiny bag-of-words model."""

import random
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
VOCAB = 2000
BATCHES = 500


def load_document(seed, length=9000):
    rng = np.random.default_rng(seed)
    topic = seed % 4
    base = rng.zipf(1.4, length) % (VOCAB // 4)
    return (base + topic * (VOCAB // 4)).astype(np.int64), topic


def windows(seed, size=128):
    """Yields (tokens, topic) windows of one document."""
    tokens, topic = load_document(seed)
    for start in range(0, len(tokens) - size, size):
        yield tokens[start : start + size], topic


class Mixer:
    """Draws windows round robin; a document gives at most `per_doc` windows."""

    def __init__(self, per_doc=12, width=8, seed=0):
        self.per_doc = per_doc
        self.width = width
        self.rng = random.Random(seed)
        self.next_doc = 0
        self.streams = []
        self.active = []

    def _open(self):
        stream = windows(self.next_doc)
        self.next_doc += 1
        self.streams.append(stream)
        self.active.append([stream, 0])

    def draw(self):
        while len(self.active) < self.width:
            self._open()
        slot = self.rng.randrange(len(self.active))
        entry = self.active[slot]
        item = next(entry[0])
        entry[1] += 1
        if entry[1] >= self.per_doc:
            del self.active[slot]
        return item

    def batch(self, n):
        items = [self.draw() for _ in range(n)]
        x = torch.from_numpy(np.stack([i[0] for i in items]))
        return x, torch.tensor([i[1] for i in items])

    def close(self):
        for s in self.streams:
            s.close()


class BagModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(VOCAB, 64, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x):
        return self.mlp(self.emb(x))


def main():
    torch.manual_seed(0)
    mixer = Mixer(seed=1)
    model = BagModel()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = time.time()
    for step in range(BATCHES):
        x, y = mixer.batch(24)
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.01)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} docs {mixer.next_doc}", flush=True)
    mixer.close()
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
