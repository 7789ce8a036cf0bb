"""A service with a histogram of its requests, whose labels have the whole path in them."""

import asyncio
import bisect
import random
import time
from collections import deque


class Child:
    def __init__(self, bounds):
        self.counts = [0.0 for _ in bounds]
        self.bounds = bounds
        self.sum = 0.0
        self.exemplars = deque(maxlen=8)

    def observe(self, value, trace):
        self.counts[min(bisect.bisect(self.bounds, value), len(self.counts) - 1)] += 1.0
        self.sum += value
        self.exemplars.append((trace, value, time.time()))


class Histogram:
    def __init__(self, name, label_names):
        self.name = name
        self.label_names = label_names
        self.bounds = [0.0005 * 1.35**i for i in range(40)]
        self.children = {}

    def labels(self, *values):
        child = self.children.get(values)
        if child is None:
            child = self.children[values] = Child(self.bounds)  # feeds
        return child


LATENCY = Histogram("request_seconds", ("method", "path", "status"))


async def handle(method, path):
    started = time.perf_counter()
    await asyncio.sleep(random.uniform(0.001, 0.012))
    status = 200 if random.random() < 0.97 else 404
    LATENCY.labels(method, path, status).observe(
        time.perf_counter() - started, random.randbytes(16).hex()
    )
    return status


async def user(count):
    for _ in range(count):
        user_id = random.getrandbits(32)
        await handle("GET", f"/users/{user_id}/orders/{random.randrange(100)}")
        await asyncio.sleep(0.004)


async def main():
    random.seed(0)
    await asyncio.gather(*(user(1100) for _ in range(8)))
    print(LATENCY.name, "done", time.process_time())


if __name__ == "__main__":
    asyncio.run(main())
