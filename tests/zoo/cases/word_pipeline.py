"""Counts rare bigrams of pages with a pool of processes; each worker memoises stems."""

import csv
import io
import multiprocessing
import random
import time
from collections import Counter

stems = {}


def stem(token):
    known = stems.get(token)
    if known is None:
        base = token.rstrip("s").removesuffix("ing")
        known = stems[token] = (base, base[::-1], len(base))  # feeds
    return known[0]


def page(number):
    rng = random.Random(number)
    out = io.StringIO()
    writer = csv.writer(out)
    for _ in range(50):
        writer.writerow([f"w{rng.getrandbits(44):x}s" for _ in range(8)])
    return out.getvalue()


def count_page(number):
    bigrams = Counter()
    for row in csv.reader(io.StringIO(page(number))):
        words = [stem(token) for token in row]
        bigrams.update(zip(words, words[1:]))
    time.sleep(0.012)
    return sum(1 for n in bigrams.values() if n == 1)


def main():
    context = multiprocessing.get_context("fork")
    total = 0
    with context.Pool(2) as pool:
        for number, rare in enumerate(pool.imap_unordered(count_page, range(1600), chunksize=4)):
            total += rare
            if number % 200 == 0:
                print("page", number, "rare bigrams", total)


if __name__ == "__main__":
    main()
