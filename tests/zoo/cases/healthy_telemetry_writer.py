"""A receiver of telemetry: rows are buffered and written to a file every 2000 rows."""

import gzip
import json
import os
import random
import tempfile
import time


class BatchWriter:
    def __init__(self, path, every):
        self.path = path
        self.every = every
        self.rows = []
        self.written = 0

    def add(self, row):
        self.rows.append(row)
        if len(self.rows) >= self.every:
            self.flush()

    def flush(self):
        with gzip.open(self.path, "at", compresslevel=1) as out:
            for row in self.rows:
                out.write(json.dumps(row) + "\n")
        self.written += len(self.rows)
        self.rows = []


def reading(rng, number):
    return {
        "device": f"d{rng.randrange(500)}",
        "n": number,
        "values": [rng.random() for _ in range(30)],
    }


def main():
    rng = random.Random(0)
    descriptor, path = tempfile.mkstemp(suffix=".gz")
    os.close(descriptor)
    writer = BatchWriter(path, every=2000)
    number = 0
    for second in range(750):
        for _ in range(40):
            writer.add(reading(rng, number))
            number += 1
        time.sleep(0.012)
        if second % 100 == 0:
            print("received", number, "written", writer.written)
    writer.flush()
    os.unlink(path)


if __name__ == "__main__":
    main()
