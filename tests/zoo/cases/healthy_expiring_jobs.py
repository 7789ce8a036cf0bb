"""Renders reports as jobs in processes; a result waits some seconds for its reader, then it goes."""

import multiprocessing
import random
import time
from collections import OrderedDict
from concurrent.futures import ProcessPoolExecutor

import numpy as np

SECONDS, JOBS_PER_SECOND, WAITS_S, ROWS = 14, 9, 4.0, 500


def render(number):
    """Return a table of sales with sums, and a chart, as bytes."""
    noise = np.random.default_rng(number)
    sales = noise.gamma(2.0, 40.0, (ROWS, 12)).cumsum(1)
    shops = [f"shop {noise.integers(1000)}" for _ in range(ROWS)]
    lines = [
        f"{shop};" + ";".join(f"{value:.2f}" for value in row)
        for shop, row in zip(shops, sales, strict=True)
    ]
    chart = np.zeros((120, 240), np.uint8)
    heights = (sales.sum(0) / sales.sum(0).max() * 119).astype(int)
    for month, height in enumerate(heights):
        chart[119 - height :, month * 20 : month * 20 + 16] = 200
    return "\n".join(lines).encode() + chart.tobytes()


class Results:
    """What jobs gave, under their number, until it is fetched or too old."""

    def __init__(self, waits_s):
        self.waits_s = waits_s
        self.held = OrderedDict()
        self.fetched = self.dropped = 0

    def put(self, number, result):
        self.held[number] = (time.monotonic(), result)
        self.expire()

    def fetch(self, number):
        entry = self.held.pop(number, None)
        self.fetched += entry is not None
        return entry[1] if entry else None

    def expire(self):
        now = time.monotonic()
        while self.held:
            number, (since, _) = next(iter(self.held.items()))
            if now - since < self.waits_s:
                return
            del self.held[number]
            self.dropped += 1


def main():
    dice, results = random.Random(0), Results(WAITS_S)
    pending, begun, size = {}, time.monotonic(), 0
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=fork) as pool:
        for number in range(SECONDS * JOBS_PER_SECOND):
            time.sleep(max(0.0, begun + number / JOBS_PER_SECOND - time.monotonic()))
            pending[number] = pool.submit(render, number)
            for known in [key for key, future in pending.items() if future.done()]:
                results.put(known, pending.pop(known).result())
            # Most readers come soon, some never.
            wanted = number - dice.randrange(1, 12)
            if dice.random() < 0.5 and (found := results.fetch(wanted)):
                size += len(found)
            if number % 27 == 26:
                print(
                    f"{number + 1} jobs, {len(results.held)} waiting, {results.fetched} fetched, "
                    f"{results.dropped} dropped, {size} bytes",
                    flush=True,
                )


if __name__ == "__main__":
    main()
