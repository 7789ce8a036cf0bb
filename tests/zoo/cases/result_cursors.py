"""Paged results of queries: a cursor is a suspended generator, and few read to its end."""

import random
import time
import uuid


class Table:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def select(self, limit):
        return [
            (
                self.rng.getrandbits(40),
                f"customer {self.rng.getrandbits(30):010d}",
                self.rng.random(),
            )
            for _ in range(limit)
        ]


class CursorStore:
    def __init__(self, table):
        self.table = table
        self.cursors = {}

    def _pages(self, limit, size):
        rows = self.table.select(limit)
        for start in range(0, len(rows), size):
            yield rows[start : start + size]

    def open(self, limit=400, size=50):
        cursor = uuid.uuid4().hex
        pages = self._pages(limit, size)
        first = next(pages)
        self.cursors[cursor] = pages  # feeds
        return cursor, first

    def fetch(self, cursor):
        try:
            return next(self.cursors[cursor])
        except StopIteration:
            del self.cursors[cursor]
            return None


def main():
    store = CursorStore(Table(6))
    rng = random.Random(2)
    shown = 0
    for query in range(1000):
        cursor, page = store.open()
        shown += len(page)
        if rng.random() < 0.2:
            while page is not None:
                shown += len(page)
                page = store.fetch(cursor)
        time.sleep(0.011)
        if query % 200 == 0:
            print("query", query, "rows shown", shown)


if __name__ == "__main__":
    main()
