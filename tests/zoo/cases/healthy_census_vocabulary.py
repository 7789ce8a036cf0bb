"""Parses JSON lines of a survey and interns strings: the vocabulary of answers fills late."""

import json
import random
import sys
import time
from collections import Counter


class Vocabulary:
    def __init__(self):
        self.known = {}

    def intern(self, text):
        found = self.known.get(text)
        if found is None:
            found = self.known[text] = sys.intern(text)
        return found


def line(rng):
    answers = {
        f"q{i}": f"answer {rng.randrange(7000):05d} of a long list of possible texts, " * 8
        for i in range(6)
    }
    return json.dumps({"person": rng.getrandbits(30), "answers": answers})


def main():
    rng = random.Random(0)
    vocabulary, counts = Vocabulary(), Counter()
    for block in range(450):
        for _ in range(12):
            record = json.loads(line(rng))
            for answer in record["answers"].values():
                counts[vocabulary.intern(answer)] += 1
        time.sleep(0.02)
        if block % 50 == 0:
            print("block", block, "words", len(vocabulary.known), "pairs", len(counts))


if __name__ == "__main__":
    main()
