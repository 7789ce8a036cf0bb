"""Near-duplicate search: shingles of documents are looked up in an index."""

import random
import time
from collections import Counter, defaultdict


class ShingleIndex:
    def __init__(self, width=4):
        self.width = width
        self.postings = defaultdict(set)

    def shingles(self, words):
        return {hash(tuple(words[i : i + self.width])) for i in range(len(words) - self.width + 1)}

    def add(self, number, words):
        for shingle in self.shingles(words):
            self.postings[shingle].add(number)

    def candidates(self, words):
        votes = Counter()
        for shingle in self.shingles(words):
            for number in self.postings[shingle]:  # feeds
                votes[number] += 1
        return votes.most_common(3)


def document(rng, length=253):
    return [rng.randrange(20_000) for _ in range(length)]


def main():
    rng = random.Random(0)
    index = ShingleIndex()
    originals = [document(rng) for _ in range(100)]
    for number, words in enumerate(originals):
        index.add(number, words)
    suspects = 0
    for incoming in range(900):
        words = document(rng)
        if rng.random() < 0.1:
            words[:120] = rng.choice(originals)[:120]
        found = index.candidates(words)
        suspects += bool(found and found[0][1] > 50)
        time.sleep(0.012)
        if incoming % 150 == 0:
            print("incoming", incoming, "suspects", suspects)


if __name__ == "__main__":
    main()
