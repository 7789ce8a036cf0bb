"""A service that makes thumbnails; decoded pictures lie in buffers of a pool, by their size."""

import asyncio
import random
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

SECONDS, PER_SECOND, MOST_IDLE, SIDES = 13, 22, 3, (128, 192, 256, 384, 512)


class BufferPool:
    """Buffers by size; a few of each size wait for their next use, more are let go."""

    def __init__(self):
        self.idle = {}
        self.made = self.used = 0

    def take(self, shape):
        waiting = self.idle.setdefault(shape, [])
        self.used += 1
        if waiting:
            return waiting.pop()
        self.made += 1
        return np.empty(shape, np.uint8)

    def give(self, buffer):
        waiting = self.idle[buffer.shape]
        if len(waiting) < MOST_IDLE:
            waiting.append(buffer)


class Thumbnails:
    def __init__(self, pool):
        self.pool = pool

    def decode(self, packed, buffer):
        rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(buffer.shape)
        np.cumsum(rows, axis=0, dtype=np.uint8, out=buffer)

    def shrink(self, buffer, side=64):
        step = buffer.shape[0] // side
        view = buffer[: side * step, : side * step].reshape(side, step, side, step, 3)
        return view.mean((1, 3)).astype(np.uint8).tobytes()

    def make(self, packed, shape):
        buffer = self.pool.take(shape)
        try:
            self.decode(packed, buffer)
            return zlib.compress(self.shrink(buffer))
        finally:
            self.pool.give(buffer)


def upload(number, dice):
    """Return a packed picture and its shape; large ones come in the evening."""
    largest = 2 + min(3, number // (SECONDS * PER_SECOND // 5))
    side = dice.choice(SIDES[:largest])
    noise = np.random.default_rng(number)
    rows = noise.integers(0, 3, (side, side, 3), dtype=np.uint8)
    return zlib.compress(rows.tobytes(), 1), (side, side, 3)


async def handle(loop, workers, thumbnails, number, dice):
    packed, shape = upload(number, dice)
    return await loop.run_in_executor(workers, thumbnails.make, packed, shape)


async def main():
    loop, dice = asyncio.get_running_loop(), random.Random(0)
    thumbnails, running, size = Thumbnails(BufferPool()), set(), 0
    begun = loop.time()

    def done(task):
        nonlocal size
        running.discard(task)
        size += len(task.result())

    with ThreadPoolExecutor(3, thread_name_prefix="thumb") as workers:
        for number in range(SECONDS * PER_SECOND):
            await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
            task = asyncio.create_task(handle(loop, workers, thumbnails, number, dice))
            running.add(task)
            task.add_done_callback(done)
            if number % 40 == 39:
                pool = thumbnails.pool
                print(f"{number + 1}: {size} bytes, {pool.made} of {pool.used} made", flush=True)
        await asyncio.gather(*running)


if __name__ == "__main__":
    asyncio.run(main())
