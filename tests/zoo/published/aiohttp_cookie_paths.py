"""A crawler with one session: aiohttp 3.12.2 keeps an empty cookie jar for each path it asks for.

Repaired in 3.12.3 ("Fixed memory leak in filter_cookies() that caused unbounded memory growth when
making requests to different URL paths", https://github.com/aio-libs/aiohttp/issues/11052).
"""

import asyncio
import time

from aiohttp import ClientSession, web

PAGES, PER_SECOND, AT_ONCE = 14000, 1000, 8


async def show_order(request):
    """Serve a page as the shop does that is crawled."""
    response = web.Response(text=f"order {request.match_info['order']}")
    response.set_cookie("visitor", "crawler")
    return response


async def fetch(session, number):
    async with session.get(
        f"/shop/users/{number}/orders/{number * 7}/items/1/photos"
    ) as response:  # feeds
        return len(await response.text())


async def crawl(session):
    numbers, total = iter(range(PAGES)), 0
    begun = time.monotonic()

    async def work():
        nonlocal total
        for number in numbers:
            await asyncio.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            total += await fetch(session, number)
            if number % 2800 == 2799:
                print(f"{number + 1} pages, {total} characters", flush=True)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def main():
    app = web.Application()
    app.router.add_get("/shop/users/{user}/orders/{order}/items/1/photos", show_order)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    async with ClientSession(f"http://localhost:{port}") as session:
        await crawl(session)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
