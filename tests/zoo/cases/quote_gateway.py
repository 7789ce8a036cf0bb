"""In-process quote gateway: asyncio clients ask a slow pricing backend for quotes."""

import asyncio
import itertools
import random
import time

REQUESTS = 1400
TIMEOUT = 0.05


class PricingBackend:
    """Answers requests after a while; one in four takes too long and is dropped."""

    def __init__(self, rng):
        self.rng = rng
        self.inbox = asyncio.Queue()
        self.reply_to = None

    async def serve(self):
        while True:
            rid, book = await self.inbox.get()
            if self.rng.random() < 0.25:
                continue  # overloaded: the venue drops it silently
            asyncio.get_running_loop().call_later(
                self.rng.uniform(0.001, 0.01), self.reply_to, rid, sum(book[:64]) / 64
            )


class Call:
    __slots__ = ("book", "future", "sent_at")

    def __init__(self, future, book):
        self.future = future
        self.book = book
        self.sent_at = time.monotonic()


class Channel:
    def __init__(self, backend):
        self.backend = backend
        backend.reply_to = self.on_reply
        self._ids = itertools.count(1)
        self._calls = {}

    async def call(self, book):
        rid = next(self._ids)
        future = asyncio.get_running_loop().create_future()
        self._calls[rid] = Call(future, book)
        await self.backend.inbox.put((rid, book))
        return await asyncio.wait_for(future, TIMEOUT)

    def on_reply(self, rid, price):
        call = self._calls.pop(rid, None)
        if call is not None and not call.future.done():
            call.future.set_result(price)


class Gateway:
    def __init__(self, channel):
        self.channel = channel
        self.ok = 0
        self.timeouts = 0

    async def quote(self, rng):
        # order book snapshot with the request: bids and asks
        book = [rng.uniform(99, 101) for _ in range(4000)]
        try:
            price = await self.channel.call(book)
        except asyncio.TimeoutError:
            self.timeouts += 1
            return None
        self.ok += 1
        return price


async def client(gateway, seed, n):
    rng = random.Random(seed)
    for _ in range(n):
        await gateway.quote(rng)
        await asyncio.sleep(rng.uniform(0.005, 0.02))


async def progress(gateway):
    while True:
        await asyncio.sleep(1.0)
        print(f"quotes {gateway.ok} timeouts {gateway.timeouts}", flush=True)


async def main():
    backend = PricingBackend(random.Random(21))
    gateway = Gateway(Channel(backend))
    tasks = [asyncio.create_task(backend.serve()), asyncio.create_task(progress(gateway))]
    await asyncio.gather(*(client(gateway, s, REQUESTS // 4) for s in range(4)))
    for t in tasks:
        t.cancel()
    print(f"done: {gateway.ok} quotes, {gateway.timeouts} timeouts")


if __name__ == "__main__":
    asyncio.run(main())
