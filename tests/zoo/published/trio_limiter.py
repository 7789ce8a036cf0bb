"""A gateway whose callers give up: trio 0.5.0 keeps each task that stopped waiting for its turn.

Repaired in 0.6.0 ("Fix memory leak in CapacityLimiter, that occurred when a task holding or waiting
on a limiter was cancelled", https://github.com/python-trio/trio/pull/548).
"""

import random
from contextvars import ContextVar

import trio

CALLS, PER_SECOND, AT_ONCE, PATIENCE, WORK = 8000, 800, 3, 0.004, 0.01
request = ContextVar("request")


async def call(rng, limiter, counts):
    """Ask the slow service behind the gateway, unless the turn comes too late."""
    request.set({"number": counts["calls"], "body": rng.randbytes(9000)})
    with trio.move_on_after(PATIENCE) as patience:
        async with limiter:  # feeds
            patience.deadline = trio.current_time() + 1
            await trio.sleep(WORK)
            counts["answered"] += len(request.get()["body"]) > 0
    counts["calls"] += 1
    if counts["calls"] % 1600 == 0:
        print(f"{counts['calls']} calls, {counts['answered']} answered", flush=True)


async def serve():
    rng = random.Random(0)
    limiter = trio.CapacityLimiter(AT_ONCE)
    counts = {"calls": 0, "answered": 0}
    async with trio.open_nursery() as nursery:
        for _ in range(CALLS):
            nursery.start_soon(call, rng, limiter, counts)
            await trio.sleep(1 / PER_SECOND)


if __name__ == "__main__":
    trio.run(serve)
