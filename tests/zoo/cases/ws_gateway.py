"""A gateway on asyncio: clients connect, send a few messages, leave; some connections break."""

import asyncio
import itertools
import random


class Session:
    def __init__(self, number):
        self.id = f"session-{number}"
        self.inbound = bytearray(96 * 1024)
        self.received = 0


class Connection:
    def __init__(self, rng):
        self.rng = rng
        self.breaks = rng.random() < 0.12
        self.messages = rng.randint(2, 6)

    async def recv(self):
        await asyncio.sleep(0.002)
        if self.messages == 0:
            return None
        self.messages -= 1
        if self.breaks and self.messages == 0:
            raise ConnectionResetError("peer is gone")
        return self.rng.randbytes(2000)


class Gateway:
    def __init__(self):
        self.sessions = {}
        self.numbers = itertools.count()
        self.total = 0

    async def serve(self, connection):
        session = Session(next(self.numbers))
        self.sessions[session.id] = session  # feeds
        while (message := await connection.recv()) is not None:
            session.inbound[: len(message)] = message
            session.received += len(message)
            self.total += 1
        del self.sessions[session.id]


async def client_side(gateway, rng, count):
    for _ in range(count):
        try:
            await gateway.serve(Connection(rng))
        except ConnectionResetError:
            pass


async def report(gateway):
    while True:
        await asyncio.sleep(2)
        print("messages", gateway.total, flush=True)


async def main():
    gateway = Gateway()
    watcher = asyncio.create_task(report(gateway))
    await asyncio.gather(*(client_side(gateway, random.Random(i), 800) for i in range(8)))
    watcher.cancel()


if __name__ == "__main__":
    asyncio.run(main())
