"""A web service that scanners send wrong methods to: aiohttp 3.10.10 keeps each refused request.

Repaired in 3.10.11 ("Fixed system routes polluting the middleware cache",
https://github.com/aio-libs/aiohttp/pull/9852, CVE-2024-52303).
"""

import asyncio
import time

from aiohttp import ClientSession, web

REQUESTS, PER_SECOND, AT_ONCE = 10000, 700, 8


@web.middleware
async def count_time(request, handler):
    begun = time.perf_counter()
    try:
        return await handler(request)
    finally:
        request.app["seconds"].append(time.perf_counter() - begun)
        del request.app["seconds"][:-100]


async def status(request):
    return web.json_response({"ok": True})


def make_app():
    app = web.Application(middlewares=[count_time])  # feeds
    app["seconds"] = []
    app.router.add_get("/status", status)
    return app


async def scan(port):
    """Ask as a scanner does: rightly and, mostly, with methods that there aren't."""
    numbers, refused = iter(range(REQUESTS)), 0
    begun = time.monotonic()

    async def work(session):
        nonlocal refused
        for number in numbers:
            await asyncio.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            method = ("GET", "POST", "PUT", "DELETE")[number % 4]
            async with session.request(method, "/status") as response:
                refused += response.status == 405
            if number % 2000 == 1999:
                print(f"{number + 1} requests, {refused} refused", flush=True)

    async with ClientSession(f"http://127.0.0.1:{port}") as session:
        await asyncio.gather(*(work(session) for _ in range(AT_ONCE)))


async def main():
    runner = web.AppRunner(make_app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    await scan(runner.addresses[0][1])
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
