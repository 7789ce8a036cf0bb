"""A price service that guards its cache by locks: aiocache 0.12.2 keeps a timer for each lock.

Releasing a lock left the timer of its lease with the backend. Repaired in 0.12.3 ("prevent memory
leak in _redlock_release of SimpleMemoryBackend", https://github.com/aio-libs/aiocache/pull/807).
"""

import asyncio
import random
import time
from collections import Counter

from aiocache import SimpleMemoryCache
from aiocache.lock import RedLock

WAVES, PER_SECOND, REQUESTS = 1200, 100, 34
ROUTES, LEASE, FRESH = 40, 1.0, 0.5
REPORT_EVERY = 200


class Request:
    """A traveller's question: where, when, and by which fares."""

    def __init__(self, rnd):
        self.route = f"r{rnd.randrange(ROUTES):03d}"
        self.day = rnd.randrange(365)
        self.fares = sorted(rnd.sample(range(100, 999), 6))
        self.party = f"{rnd.getrandbits(64):016x}"

    @property
    def key(self):
        return f"quote:{self.route}:day={self.day}:fares={self.fares}:party={self.party}"


class Quotes:
    def __init__(self):
        self.cache = SimpleMemoryCache()
        self.counts = Counter()

    async def compute(self, request):
        await asyncio.sleep(0)  # the pricing engine
        return sum(request.fares) * (1 + request.day % 7) / 7

    async def quote(self, request):
        """Return a price, computed by only one of those who ask at the same time."""
        price = await self.cache.get(request.key)
        if price is None:
            async with RedLock(self.cache, request.key, LEASE):  # feeds
                price = await self.cache.get(request.key)
                if price is None:
                    self.counts["computed"] += 1
                    price = await self.compute(request)
                    await self.cache.set(request.key, price, ttl=FRESH)
        self.counts["answered"] += 1
        return price


async def main():
    rnd, quotes, begun = random.Random(0), Quotes(), time.monotonic()
    for wave in range(1, WAVES + 1):
        await asyncio.sleep(max(0.0, begun + wave / PER_SECOND - time.monotonic()))
        asked = [Request(rnd) for _ in range(REQUESTS - 8)]
        asked += rnd.choices(asked, k=8)  # several travellers of a party
        prices = await asyncio.gather(*(quotes.quote(request) for request in asked))
        if wave % REPORT_EVERY == 0:
            print(f"wave {wave}: {dict(quotes.counts)}, dearest {max(prices):.2f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
