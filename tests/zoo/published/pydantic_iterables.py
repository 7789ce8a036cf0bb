"""An ingest service with lazily checked rows: pydantic 2.7.0 keeps iterators that refer back.

Repaired in 2.7.1 ("Fix memory leak with Iterable validation",
https://github.com/pydantic/pydantic-core/pull/1271).
"""

import random
import time
from collections.abc import Iterable

from pydantic import BaseModel

PER_SECOND, SECONDS, ROWS = 900, 10, 200


class Upload(BaseModel):
    name: str
    rows: Iterable[float]


class Reader:
    """Reads the rows of one upload, and knows the upload for what it has to say of it."""

    def __init__(self, rng):
        self.values = [rng.random() for _ in range(ROWS)]
        self.upload = None
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.values):
            raise StopIteration
        self.at += 1
        return self.values[self.at - 1]


def ingest(rng, number):
    reader = Reader(rng)
    upload = Upload(name=f"upload {number}", rows=reader)  # feeds
    reader.upload = upload
    return sum(upload.rows)


def main():
    rng = random.Random(0)
    total = 0.0
    begun = time.monotonic()
    for number in range(1, PER_SECOND * SECONDS + 1):
        if number % 30 == 0:
            time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        total += ingest(rng, number)
        if number % 1800 == 0:
            print(f"{number} uploads, sum {total:.0f}", flush=True)


if __name__ == "__main__":
    main()
