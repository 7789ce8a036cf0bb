"""A server of live predictions: clients subscribe, each has a logger, some break off silently."""

import asyncio
import logging

import numpy as np

TICKS_PER_S, CLIENTS_PER_S, SECONDS, POINTS = 40, 10, 16, 3000


class Redact(logging.Filter):
    """Keeps a client's secrets out of the log."""

    def __init__(self, secrets):
        super().__init__()
        self.secrets = secrets

    def filter(self, record):
        return not any(secret in record.getMessage() for secret in self.secrets)


class Broker:
    def __init__(self):
        self.queues = {}

    def subscribe(self, client):
        self.queues[client] = asyncio.Queue()
        return self.queues[client]

    def publish(self, message):
        for queue in self.queues.values():
            queue.put_nowait(message)  # feeds: queues

    def unsubscribe(self, client):
        self.queues.pop(client, None)


async def client(broker, number):
    """Follow the predictions for a second; one in fifty breaks off without a word."""
    log = logging.getLogger(f"client.{number}")
    log.addFilter(Redact([f"{number}-{i}".ljust(200, "#") for i in range(40)]))  # feeds: loggers
    queue = broker.subscribe(number)
    for _ in range(TICKS_PER_S):
        message = await queue.get()
        log.debug("got %d bytes", len(message))
    if number % 50 != 0:
        broker.unsubscribe(number)


async def serve():
    rng = np.random.default_rng(0)
    broker, clients = Broker(), set()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for tick in range(TICKS_PER_S * SECONDS):
        await asyncio.sleep(max(0.0, begun + tick / TICKS_PER_S - loop.time()))
        if tick % (TICKS_PER_S // CLIENTS_PER_S) == 0:
            task = asyncio.create_task(client(broker, tick * CLIENTS_PER_S // TICKS_PER_S))
            clients.add(task)
            task.add_done_callback(clients.discard)
        broker.publish(rng.standard_normal(POINTS).tobytes())
        if tick % 160 == 159:
            print(f"tick {tick}: {len(clients)} clients, {len(broker.queues)} queues", flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
