"""Keeps a log for each task: structlog 25.5.0 keeps every buffer that a task wrote its log into.

Repaired in 26.1.0 ("now hold *weak* references to the files they use for output",
https://github.com/hynek/structlog/pull/807).
"""

import io
import json
import math
import random
import time
import zlib
from collections import Counter
from typing import ClassVar

import structlog

TASKS = 7500
REPORT_EVERY = 250


def to_json(event, **options):
    return json.dumps(event, **options).encode()


PROCESSORS = [
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.dict_tracebacks,
    structlog.processors.JSONRenderer(serializer=to_json),
]


class TaskLog:
    """The log of one task, kept in memory until the task is finished."""

    def __init__(self, task_id, kind):
        self.buffer = io.BytesIO()
        self.logger = structlog.wrap_logger(
            structlog.BytesLogger(self.buffer),  # feeds
            processors=PROCESSORS,
            wrapper_class=structlog.BoundLogger,
            context_class=dict,
        ).bind(task=task_id, kind=kind)

    def packed(self):
        return zlib.compress(self.buffer.getvalue(), 6)


class Archive:
    """Remembers no logs, only what was stored."""

    def __init__(self):
        self.count = 0
        self.size = 0
        self.checksum = 0

    def store(self, blob):
        self.count += 1
        self.size += len(blob)
        self.checksum = zlib.crc32(blob[:2], self.checksum)


def solve_route(rnd, log):
    """A tiny travelling salesman: nearest neighbour and 2-opt."""
    towns = [(rnd.random(), rnd.random()) for _ in range(30)]
    tour = list(range(len(towns)))

    def length(t):
        return sum(math.dist(towns[t[i - 1]], towns[t[i]]) for i in range(len(t)))

    best = length(tour)
    log.info("start", towns=len(towns), length=round(best, 4))
    for round_number in range(240):
        i, j = sorted(rnd.sample(range(1, len(tour)), 2))
        candidate = tour[:i] + tour[i : j + 1][::-1] + tour[j + 1 :]
        value = length(candidate)
        if value < best:
            tour, best = candidate, value
            log.info("improved", round=round_number, swap=[i, j], length=round(best, 4))
        elif round_number % 12 == 0:
            log.debug("rejected", round=round_number, swap=[i, j], length=round(value, 4))
    return best


def fit_line(rnd, log):
    slope, offset = rnd.uniform(-2, 2), rnd.uniform(-1, 1)
    data = [(x / 20, slope * x / 20 + offset + rnd.gauss(0, 0.05)) for x in range(500)]
    a = b = 0.0
    for step in range(24):
        ga = sum((a * x + b - y) * x for x, y in data) / len(data)
        gb = sum((a * x + b - y) for x, y in data) / len(data)
        a, b = a - 0.3 * ga, b - 0.3 * gb
        log.info("descent", step=step, slope=round(a, 5), offset=round(b, 5))
    if rnd.random() < 0.1:
        raise ArithmeticError("residual too large")
    return a


class Runner:
    KINDS: ClassVar = {"route": solve_route, "line": fit_line}

    def __init__(self, seed, archive):
        self.random = random.Random(seed)
        self.archive = archive
        self.outcome = Counter()

    def run(self, number):
        kind = self.random.choice(sorted(self.KINDS))
        task_log = TaskLog(f"t{number:06d}", kind)
        log = task_log.logger
        try:
            result = self.KINDS[kind](self.random, log)
            log.info("finished", result=round(result, 5))
            self.outcome[kind, "ok"] += 1
        except ArithmeticError as error:
            log.error("failed", reason=str(error))
            self.outcome[kind, "failed"] += 1
        self.archive.store(task_log.packed())


def main():
    started = time.time()
    archive = Archive()
    runner = Runner(seed=99, archive=archive)
    for number in range(1, TASKS + 1):
        runner.run(number)
        if number % REPORT_EVERY == 0:
            print(
                f"task {number}/{TASKS}  archived {archive.size / 1e6:6.2f} MB  "
                f"{time.time() - started:5.1f} s",
                flush=True,
            )
    for (kind, state), count in sorted(runner.outcome.items()):
        print(f"{kind:6s} {state:7s} {count:6d}")


if __name__ == "__main__":
    main()
