"""Builds an index of vectors for each tenant in turn: usearch 0.22.2 keeps what indexes held.

Repaired in 0.22.3 ("Fix: Memory leaks", https://github.com/unum-cloud/usearch/commit/d7b1b571).
"""

import numpy as np
from usearch.index import Index

TENANTS, DOCUMENTS, QUERIES, WIDTH = 240, 600, 40, 96


def documents(rng, topics):
    topic = rng.integers(0, len(topics), DOCUMENTS)
    return topics[topic] + 0.3 * rng.normal(size=(DOCUMENTS, WIDTH)).astype(np.float32), topic


def main():
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(30, WIDTH)).astype(np.float32)
    right = asked = 0
    for tenant in range(1, TENANTS + 1):
        vectors, topic = documents(rng, topics)
        index = Index(ndim=WIDTH, metric="cos", dtype="f32")  # feeds
        index.add(np.arange(DOCUMENTS), vectors)  # feeds
        found = index.search(vectors[:QUERIES] + 0.1, 5)
        right += int((topic[np.asarray(found.labels).astype(int)] == topic[:QUERIES, None]).sum())
        asked += 5 * QUERIES
        if tenant % 10 == 0:
            print(f"tenant {tenant}/{TENANTS}: {right / asked:.1%} of the right topic", flush=True)


if __name__ == "__main__":
    main()
