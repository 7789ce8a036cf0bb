"""An asyncio queue gets a burst at first, then the backlog is worked off."""

import asyncio
import os
import zlib


async def producer(queue, messages, burst):
    for number in range(messages):
        await queue.put(os.urandom(12 * 1024))
        await asyncio.sleep(0.001 if number < burst else 0.02)
    await queue.put(None)


async def consumer(queue, totals):
    while (message := await queue.get()) is not None:
        totals["bytes"] += len(message)
        totals["crc"] = zlib.crc32(message, totals["crc"])
        await asyncio.sleep(0.003)


async def monitor(queue):
    while True:
        print("backlog", queue.qsize(), flush=True)
        await asyncio.sleep(1)


async def main():
    queue, totals = asyncio.Queue(), {"bytes": 0, "crc": 0}
    watch = asyncio.create_task(monitor(queue))
    await asyncio.gather(producer(queue, 4000, 3800), consumer(queue, totals))
    watch.cancel()
    print(totals)


if __name__ == "__main__":
    asyncio.run(main())
