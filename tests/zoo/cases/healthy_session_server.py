"""aiohttp shop server on localhost with expiring sessions, and a load generator."""

import asyncio
import random
import time

import aiohttp
from aiohttp import web

TTL = 2.5
DURATION = 13.0


class SessionStore:
    def __init__(self, ttl):
        self.ttl = ttl
        self.sessions = {}
        self.created = 0
        self.expired = 0

    def open(self, sid):
        s = self.sessions.get(sid)
        if s is None:
            s = self.sessions[sid] = {
                "cart": [],
                "catalogue": bytearray(b"x" * 120_000),
                "seen": 0.0,
            }
            self.created += 1
        s["seen"] = time.monotonic()
        return s

    def expire(self):
        limit = time.monotonic() - self.ttl
        for sid in [k for k, s in self.sessions.items() if s["seen"] < limit]:
            del self.sessions[sid]
            self.expired += 1

    async def janitor(self):
        while True:
            await asyncio.sleep(0.25)
            self.expire()


def make_app(store):
    async def add(request):
        s = store.open(request.match_info["sid"])
        s["cart"].append(request.query.get("item", "?"))
        return web.json_response({"items": len(s["cart"])})

    async def checkout(request):
        s = store.open(request.match_info["sid"])
        n = len(s["cart"])
        s["cart"].clear()
        return web.json_response({"bought": n})

    app = web.Application()
    app.router.add_get("/{sid}/add", add)
    app.router.add_get("/{sid}/checkout", checkout)
    return app


async def visitor(http, base, sid, rng):
    for i in range(4):
        async with http.get(f"{base}/s{sid}/add", params={"item": str(rng.randrange(50))}) as r:
            await r.json()
    if rng.random() < 0.6:  # the others just walk away
        async with http.get(f"{base}/s{sid}/checkout") as r:
            await r.json()


async def main():
    store = SessionStore(TTL)
    runner = web.AppRunner(make_app(store), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    base = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    janitor = asyncio.create_task(store.janitor())
    rng = random.Random(3)
    start = time.monotonic()
    sid, last = 0, 0.0
    async with aiohttp.ClientSession() as http:
        while (now := time.monotonic() - start) < DURATION:
            await visitor(http, base, sid, rng)
            sid += 1
            await asyncio.sleep(0.008)
            if now - last >= 1.0:
                last = now
                print(
                    f"{now:4.1f}s sessions {len(store.sessions)} created {store.created} "
                    f"expired {store.expired}",
                    flush=True,
                )
    janitor.cancel()
    await runner.cleanup()
    print(f"{store.created} visitors served")


if __name__ == "__main__":
    asyncio.run(main())
