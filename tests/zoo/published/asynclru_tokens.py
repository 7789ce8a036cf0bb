"""Checks the tokens of requests: async-lru 2.0.4 keeps each call that raised, with its exception.

A failed call stayed in the cache until it was made again. Repaired in 2.0.5 ("Fixed a memory leak
on exceptions and minor performance improvement",
https://github.com/aio-libs/async-lru/releases/tag/v2.0.5).
"""

import asyncio
import random
from collections import Counter

from async_lru import alru_cache

WAVES, REQUESTS, STAFF, REPORT_EVERY = 900, 24, 60, 150


class RejectedError(Exception):
    pass


class Gatekeeper:
    """Knows the tokens of the staff; scanners try their luck with others."""

    def __init__(self, known):
        self.known = known
        self.counts = Counter()

    @alru_cache(maxsize=None)
    async def holder(self, token):
        await asyncio.sleep(0)  # asks the directory
        claims = {"token": token, "scopes": [f"scope-{index}" for index in range(12)]}
        if token not in self.known:
            raise RejectedError(claims["token"][:8])
        return self.known[token], claims

    async def admit(self, token):
        try:
            name, _ = await self.holder(token)  # feeds
        except RejectedError:
            self.counts["rejected"] += 1
            return None
        self.counts["admitted"] += 1
        return name


async def main():
    rnd = random.Random(1)
    staff = {f"{rnd.getrandbits(256):064x}": f"person-{index}" for index in range(STAFF)}
    keeper, tokens = Gatekeeper(staff), list(staff)
    for wave in range(1, WAVES + 1):
        asked = [
            rnd.choice(tokens) if rnd.random() < 0.4 else f"{rnd.getrandbits(256):064x}"
            for _ in range(REQUESTS)
        ]
        await asyncio.gather(*(keeper.admit(token) for token in asked))
        await asyncio.sleep(0.008)
        if wave % REPORT_EVERY == 0:
            print(f"wave {wave}: {dict(keeper.counts)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
