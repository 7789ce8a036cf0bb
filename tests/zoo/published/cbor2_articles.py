"""Counts the words of archived articles: cbor2 5.8.0 keeps a part of each text beyond 64 KiB.

The parts that were joined so far, and a buffer. Repaired in 5.9.0 ("Fixed two reference/memory
leaks in the C extension's long string decoder", https://github.com/agronholm/cbor2/pull/290).
"""

import random
import time
from collections import Counter

import cbor2

ARTICLES, PER_SECOND = 300, 25
PARAGRAPHS, LENGTH = 130, 120
REPORT_EVERY = 50
TEXT = (
    "river bridge council voted to keep the old market open while traders from the valley sold "
    "apples and wool near the station where the last train left for the coast at nine"
)
WORDS = TEXT.split()


class Archive:
    """Stands for the store from which the articles come, one CBOR document each."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.paragraphs = [" ".join(self.random.choices(WORDS, k=LENGTH)) for _ in range(400)]

    def document(self, number):
        many = self.random.randint(PARAGRAPHS, PARAGRAPHS + 40)
        return cbor2.dumps(
            {
                "number": number,
                "title": " ".join(self.random.choices(WORDS, k=6)).title(),
                "body": "\n".join(self.random.choices(self.paragraphs, k=many)),
                "tags": self.random.sample(WORDS, 3),
            }
        )


class Index:
    """How often each word and each tag comes, and the longest article."""

    def __init__(self):
        self.words, self.tags = Counter(), Counter()
        self.longest = (0, "")

    def add(self, article):
        body = article["body"]
        self.words.update(body.split())
        self.tags.update(article["tags"])
        self.longest = max(self.longest, (len(body), article["title"]))


def main():
    archive, index = Archive(seed=0), Index()
    begun = time.monotonic()
    for number in range(1, ARTICLES + 1):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        article = cbor2.loads(archive.document(number))  # feeds
        index.add(article)
        if number % REPORT_EVERY == 0:
            total = sum(index.words.values())
            print(f"{number} articles, {total} words, longest {index.longest}", flush=True)
    print(index.tags.most_common(3))


if __name__ == "__main__":
    main()
