"""Broadcasts prices of a market to subscribers that come and go; some connections break."""

import asyncio
import json
import random
import zlib

import numpy as np

SYMBOLS, SECONDS, TICKS_PER_SECOND, CLIENTS = 400, 14, 50, 12


class ConnectionBroken(Exception):
    pass


class Subscription:
    """What one client is to be sent; the oldest is dropped where it doesn't keep up."""

    def __init__(self, name, symbols, size=128):
        self.name, self.symbols = name, symbols
        self.queue = asyncio.Queue(size)
        self.missed = 0

    def offer(self, prices):
        if self.queue.full():
            self.queue.get_nowait()
            self.missed += 1
        text = json.dumps({str(s): round(float(prices[s]), 4) for s in self.symbols})
        self.queue.put_nowait(text.encode())


class Hub:
    def __init__(self):
        self.subscriptions = {}
        self.opened = 0

    def subscribe(self, symbols):
        self.opened += 1
        one = Subscription(f"client-{self.opened}", symbols)
        self.subscriptions[one.name] = one
        return one

    def unsubscribe(self, subscription):
        self.subscriptions.pop(subscription.name, None)

    def publish(self, prices):
        for subscription in self.subscriptions.values():
            subscription.offer(prices)


async def serve(hub, symbols, dice, life):
    """Send a client what it subscribed to until it leaves."""
    subscription = hub.subscribe(symbols)
    sent = 0
    while sent < life:
        message = await subscription.queue.get()
        await asyncio.sleep(0.01 if dice.random() < 0.9 else 0.05)
        sent += len(zlib.compress(message, 1)) > 0
        if dice.random() < 0.003:
            raise ConnectionBroken(subscription.name)
    hub.unsubscribe(subscription)
    return sent


async def client(hub, number, until):
    """Connect again and again, now with these symbols and then with others."""
    dice = random.Random(number)
    loop = asyncio.get_running_loop()
    totals = {"sent": 0, "broken": 0}
    while loop.time() < until:
        symbols = dice.sample(range(SYMBOLS), 60)
        try:
            totals["sent"] += await asyncio.wait_for(
                serve(hub, symbols, dice, dice.randrange(20, 120)), until - loop.time()
            )
        except ConnectionBroken:
            totals["broken"] += 1
        except TimeoutError:
            break
        await asyncio.sleep(0.05)
    return totals


async def market(hub, until):
    rng = np.random.default_rng(0)
    prices, number = 100 * np.exp(rng.standard_normal(SYMBOLS)), 0
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while loop.time() < until:
        prices *= np.exp(0.001 * rng.standard_normal(SYMBOLS))
        hub.publish(prices)
        number += 1
        if number % 100 == 0:
            print(f"tick {number}: {prices.mean():.3f}", flush=True)
        await asyncio.sleep(max(0.0, begun + number / TICKS_PER_SECOND - loop.time()))


async def main():
    hub = Hub()
    until = asyncio.get_running_loop().time() + SECONDS
    clients = [asyncio.create_task(client(hub, number, until)) for number in range(CLIENTS)]
    await market(hub, until)
    await asyncio.gather(*clients)
    print("closed", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
