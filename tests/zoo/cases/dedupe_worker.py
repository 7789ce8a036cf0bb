"""Removes near duplicates from a stream of texts: a process of its own compares their sketches."""

import multiprocessing as mp
import random
import time
import zlib

import numpy as np

TEXTS, PER_SECOND, PERMUTATIONS, BATCH = 3600, 300, 256, 10


class Sketcher:
    """Min-hashes of the words of a text."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.factor = rng.integers(1, 2**63, PERMUTATIONS, dtype=np.uint64) | np.uint64(1)
        self.offset = rng.integers(0, 2**63, PERMUTATIONS, dtype=np.uint64)

    def sketch(self, words):
        codes = np.array([zlib.crc32(word.encode()) for word in words], dtype=np.uint64)
        return ((codes[:, None] * self.factor + self.offset) >> np.uint64(20)).min(0)


class Deduplicator:
    """Finds texts that share a band of their sketch with an earlier one."""

    def __init__(self, bands=16):
        self.sketcher, self.rows = Sketcher(0), PERMUTATIONS // bands
        self.sketches = {}
        self.buckets = {}

    def is_new(self, number, words):
        sketch = self.sketcher.sketch(words)
        keys = [sketch[at : at + self.rows].tobytes() for at in range(0, PERMUTATIONS, self.rows)]
        for other in {self.buckets[key] for key in keys if key in self.buckets}:
            if (self.sketches[other] == sketch).mean() > 0.6:
                return False
        self.sketches[number] = sketch
        self.buckets.update(dict.fromkeys(keys, number))
        return True


def deduplicate(texts, verdicts):
    deduplicator = Deduplicator()
    while (batch := texts.get()) is not None:
        verdicts.put([(number, deduplicator.is_new(number, words)) for number, words in batch])


def stream(seed, vocabulary=20000):
    dice = random.Random(seed)
    words = [f"word{n}" for n in range(vocabulary)]
    last = dice.choices(words, k=120)
    for number in range(TEXTS):
        if number % 10 == 9:
            text = [*last[:110], *dice.choices(words, k=10)]
        else:
            text = last = dice.choices(words, k=120)
        yield number, text


def main():
    context = mp.get_context("spawn")
    texts, verdicts = context.Queue(), context.Queue()
    worker = context.Process(target=deduplicate, args=(texts, verdicts), name="dedupe")
    worker.start()
    begun, batch, kept = time.monotonic(), [], 0
    for number, words in stream(1):
        batch.append((number, words))
        if len(batch) == BATCH:
            time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            texts.put(batch)
            batch = []
            kept += sum(new for _, new in verdicts.get())
            if (number + 1) % 600 == 0:
                print(f"{number + 1} texts, {kept} of them new", flush=True)
    texts.put(None)
    worker.join()


if __name__ == "__main__":
    main()
