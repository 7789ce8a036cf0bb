"""A search service: a thread rebuilds the index beside the old one, then swaps them."""

import functools
import random
import threading
import time
from collections import defaultdict


def build_index(seed, documents=4000, words=30):
    rng = random.Random(seed)
    index = defaultdict(list)
    for number in range(documents):
        for _ in range(words):
            index[f"term{int(rng.paretovariate(0.6)) % 20_000}"].append(number)
        if number % 100 == 0:
            time.sleep(0.002)
    return dict(index)


class SearchService:
    def __init__(self):
        self.index = build_index(0)
        self.generation = 0
        self.stop = threading.Event()
        self.cached_query = functools.lru_cache(maxsize=500)(self.query)

    def query(self, first, second):
        a, b = self.index.get(first, ()), self.index.get(second, ())
        return sorted(set(a) & set(b))[:50]

    def rebuild_forever(self):
        while not self.stop.wait(2.0):
            fresh = build_index(self.generation + 1)
            self.index = fresh
            self.cached_query.cache_clear()
            self.generation += 1


def main():
    rng = random.Random(5)
    service = SearchService()
    rebuilder = threading.Thread(target=service.rebuild_forever, daemon=True)
    rebuilder.start()
    found = 0
    for request in range(3000):
        terms = [f"term{int(rng.paretovariate(0.6)) % 20_000}" for _ in range(2)]
        found += len(service.cached_query(*terms))
        time.sleep(0.005)
        if request % 500 == 0:
            print("request", request, "generation", service.generation, "found", found)
    service.stop.set()
    rebuilder.join()


if __name__ == "__main__":
    main()
