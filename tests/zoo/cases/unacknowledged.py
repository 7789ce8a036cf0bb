"""A gateway that sends forecasts to weather stations, each of which has to acknowledge its own."""

import asyncio
import itertools

import numpy as np

PER_SECOND, SECONDS, HOURS, CELLS = 50, 14, 48, 512


class Model:
    """Extends the field around a station by some hours."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.advance = np.linalg.qr(rng.standard_normal((CELLS, CELLS)))[0].astype(np.float32)

    def forecast(self, field):
        hours = np.empty((HOURS, CELLS), dtype=np.float32)
        for hour in range(HOURS):
            field = self.advance @ field
            hours[hour] = field
        return hours


class Link:
    """The radio link to a station: some stations hear and never answer."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.tasks = set()

    async def send(self, station, ticket, payload):
        await asyncio.sleep(0.002)
        if station % 7 != 3:
            task = asyncio.create_task(self.answer(ticket, len(payload)))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def answer(self, ticket, size):
        await asyncio.sleep(0.02 + size * 1e-8)
        self.gateway.acknowledged(ticket)


class Gateway:
    def __init__(self, model):
        self.model = model
        self.link = Link(self)
        self.tickets = itertools.count()
        self.waiting = {}
        self.delivered = 0

    async def publish(self, station, field):
        """Send a station its forecast and wait until it says that it has it."""
        hours = self.model.forecast(field)
        ticket = next(self.tickets)
        answer = asyncio.get_running_loop().create_future()
        self.waiting[ticket] = answer
        await self.link.send(station, ticket, hours)
        await answer
        self.delivered += hours.nbytes

    def acknowledged(self, ticket):
        self.waiting.pop(ticket).set_result(None)


async def serve():
    rng = np.random.default_rng(2)
    gateway = Gateway(Model(0))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number in range(PER_SECOND * SECONDS):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
        field = rng.standard_normal(CELLS, dtype=np.float32)
        asyncio.create_task(gateway.publish(number, field))  # noqa: RUF006
        if number % 100 == 99:
            print(f"{number + 1} sent, {gateway.delivered >> 10} KiB delivered", flush=True)
    await asyncio.sleep(0.2)
    print(f"{len(gateway.waiting)} stations never answered")


if __name__ == "__main__":
    asyncio.run(serve())
