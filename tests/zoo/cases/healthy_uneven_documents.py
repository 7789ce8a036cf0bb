"""Parsing of documents of very different sizes, of which a few summaries outlive the others."""

import json
import random
import zlib

import numpy as np

DOCUMENTS, RECENT = 3600, 64


def document(rng, number):
    """Return a document as it comes over the wire; one in forty is large."""
    fields = rng.randrange(8000, 16000) if number % 40 == 0 else rng.randrange(50, 1200)
    body = {f"key{i}": [i, rng.random(), f"value {i * 7919 % 1000}"] for i in range(fields)}
    return zlib.compress(json.dumps({"number": number, "body": body}).encode(), 1)


class Summaries:
    """Summaries of the documents of late, the oldest overwritten."""

    def __init__(self, size):
        self.latest = [None] * size

    def add(self, number, body):
        values = np.array([value[1] for value in body.values()])
        words = sorted({value[2] for value in body.values()})[:50]
        summary = {
            "number": number,
            "words": words,
            "curve": np.sort(values)[:: 1 + len(values) // 200],
        }
        self.latest[number % len(self.latest)] = summary


def main():
    rng = random.Random(0)
    summaries = Summaries(RECENT)
    total = 0
    for number in range(1, DOCUMENTS + 1):
        content = json.loads(zlib.decompress(document(rng, number)))
        total += len(content["body"])
        summaries.add(content["number"], content["body"])
        if number % 400 == 0:
            print(f"{number} documents, {total} fields", flush=True)


if __name__ == "__main__":
    main()
