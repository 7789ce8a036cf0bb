"""An asyncio application spawns audit tasks; a request's body lies in a context variable."""

import asyncio
import contextvars
import hashlib
import os

current_body = contextvars.ContextVar("current_body")


class Application:
    def __init__(self):
        self.background = set()
        self.digests = 0

    def spawn(self, coroutine):
        task = asyncio.create_task(coroutine)
        self.background.add(task)  # feeds
        return task

    async def audit(self):
        await asyncio.sleep(0.005)
        hashlib.sha256(current_body.get()).digest()
        self.digests += 1

    async def handle(self, body):
        current_body.set(body)
        self.spawn(self.audit())
        await asyncio.sleep(0.003)
        return len(body)


async def client(app, count):
    for _ in range(count):
        # every request in a task of its own, as servers do
        await asyncio.create_task(app.handle(os.urandom(24 * 1024)))
        await asyncio.sleep(0.02)


async def main():
    app = Application()
    clients = [asyncio.create_task(client(app, 450)) for _ in range(4)]
    while not all(c.done() for c in clients):
        await asyncio.sleep(1.5)
        print("audited", app.digests, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
