"""Converts record files; each header gives a dataclass that singledispatch gets to know."""

import dataclasses
import functools
import random
import time


@functools.singledispatch
def to_row(record):
    raise TypeError(type(record))


def converter(table):
    def convert(record):
        return [table[value % len(table)] for value in dataclasses.astuple(record)]

    return convert


def load_file(number, rng):
    header = [f"c{rng.randrange(10_000)}_{i}" for i in range(12)]
    record_type = dataclasses.make_dataclass(f"Record{number}", [(name, int) for name in header])
    table = [0.5 * i for i in range(1000)]
    to_row.register(record_type, converter(table))  # feeds
    total = 0.0
    for _ in range(40):
        record = record_type(*(rng.randrange(5000) for _ in header))
        total += sum(to_row(record))
    return total


def main():
    rng = random.Random(0)
    total = 0.0
    for number in range(700):
        total += load_file(number, rng)
        time.sleep(0.014)
        if number % 100 == 0:
            print("file", number, "total", round(total))


if __name__ == "__main__":
    main()
