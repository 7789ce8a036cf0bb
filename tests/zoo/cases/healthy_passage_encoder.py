"""Passage retrieval engine: transformer encoder with an LRU cache of encoded passages."""

import random
import time
from collections import OrderedDict

import torch
import torch.nn as nn

torch.set_num_threads(1)
QUERIES = 700
CAPACITY = 220


class Encoder(nn.Module):
    def __init__(self, vocab=3000, d=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        layer = nn.TransformerEncoderLayer(d, 4, 128, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens):
        return self.enc(self.emb(tokens))


class PassageCache:
    def __init__(self, capacity):
        self.capacity = capacity
        self.items = OrderedDict()
        self.hits = self.misses = 0

    def get(self, key):
        if key in self.items:
            self.items.move_to_end(key)
            self.hits += 1
            return self.items[key]
        self.misses += 1
        return None

    def put(self, key, value):
        self.items[key] = value
        while len(self.items) > self.capacity:
            self.items.popitem(last=False)


class Engine:
    def __init__(self):
        torch.manual_seed(1)
        self.encoder = Encoder().eval()
        self.cache = PassageCache(CAPACITY)

    def passage(self, pid):
        states = self.cache.get(pid)
        if states is None:
            g = torch.Generator().manual_seed(pid)
            tokens = torch.randint(0, 3000, (1, 360), generator=g)
            with torch.no_grad():
                states = self.encoder(tokens)[0]
            self.cache.put(pid, states)
        return states

    def score(self, query, pids):
        with torch.no_grad():
            q = self.encoder(query.unsqueeze(0))[0]
            scored = []
            for pid in pids:
                sim = q @ self.passage(pid).T  # late interaction
                scored.append((sim.max(1).values.sum().item(), pid))
        return max(scored)


def main():
    rng = random.Random(2)
    engine = Engine()
    start = time.time()
    for n in range(QUERIES):
        # every query brings mostly new candidates, and some popular ones
        pids = [10_000 + n * 2, 10_001 + n * 2] + [rng.randrange(40) for _ in range(2)]
        g = torch.Generator().manual_seed(n)
        query = torch.randint(0, 3000, (16,), generator=g)
        best, _ = engine.score(query, pids)
        time.sleep(0.003)
        if n % 70 == 69:
            c = engine.cache
            print(
                f"query {n + 1} best {best:.2f} hit rate {c.hits / (c.hits + c.misses):.2f} "
                f"cached {len(c.items)}",
                flush=True,
            )
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
