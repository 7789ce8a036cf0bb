"""A dashboard's event streams, reconnected often: sse-starlette 3.1.1 keeps a watcher for each.

A task that waits for the server's end, with the context of the request that started it. Repaired in
3.1.2 ("prevent watcher task leak with threading.local",
https://github.com/sysid/sse-starlette/issues/152).
"""

import asyncio
import contextvars
import random
import time
from collections import Counter

import uvicorn
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.routing import Route

ROUNDS, PER_SECOND, PANELS, EVENTS = 144, 12, 5, 3
REPORT_EVERY = 24

viewer = contextvars.ContextVar("viewer", default=None)


class Viewer:
    """Who looks at a panel, and what is filtered for them, read from their session."""

    def __init__(self, number):
        rnd = random.Random(number)
        self.name = f"viewer-{number % 300}"
        self.filters = {f"host-{n:03d}": f"{rnd.getrandbits(96):024x}" for n in range(120)}


class Identified:
    """Middleware that puts the viewer of a request into its context."""

    def __init__(self, app):
        self.app, self.number = app, 0

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            self.number += 1
            viewer.set(Viewer(self.number))
        await self.app(scope, receive, send)


async def panel(request):
    """Send what changed on a panel, then end; the browser comes back for more."""

    async def changes():
        for number in range(EVENTS):
            who = viewer.get()
            yield {"event": "change", "data": f"{number} of {len(who.filters)} hosts"}

    return EventSourceResponse(changes(), ping=60)  # feeds


async def browse(port, name, counts):
    """Read one stream to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /panels/{name} HTTP/1.1\r\nHost: dashboard\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    content = await reader.read()
    counts["streams"] += 1
    counts["events"] += content.count(b"event: change")
    writer.close()
    await writer.wait_closed()


async def main():
    app = Identified(Starlette(routes=[Route("/panels/{name}", panel)]))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    counts, begun = Counter(), time.monotonic()
    for number in range(1, ROUNDS + 1):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        names = [f"p{n}" for n in range(PANELS)]
        await asyncio.gather(*(browse(port, name, counts) for name in names))
        if number % REPORT_EVERY == 0:
            print(f"round {number}: {dict(counts)}", flush=True)
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
