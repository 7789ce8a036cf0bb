"""The event bus of a trading screen: every view subscribes to price changes."""

import array
import random
import time
from collections import defaultdict


class EventBus:
    def __init__(self):
        self.listeners = defaultdict(list)

    def on(self, topic, callback):
        self.listeners[topic].append(callback)  # feeds

    def off(self, topic, callback):
        self.listeners[topic].remove(callback)

    def emit(self, topic, payload):
        for callback in self.listeners[topic]:
            callback(payload)


class ChartView:
    def __init__(self, bus, symbol):
        self.symbol = symbol
        self.prices = array.array("d", bytes(8 * 5000))
        self.cursor = 0
        self.open = True
        bus.on(f"price.{symbol}", self.on_price)

    def on_price(self, price):
        if self.open:
            self.prices[self.cursor % 5000] = price
            self.cursor += 1

    def close(self):
        self.open = False


class Desk:
    def __init__(self, symbols):
        self.bus = EventBus()
        self.symbols = symbols
        self.views = []

    def open_view(self, rng):
        self.views.append(ChartView(self.bus, rng.choice(self.symbols)))
        if len(self.views) > 6:
            self.views.pop(0).close()

    def tick(self, rng):
        for symbol in self.symbols:
            self.bus.emit(f"price.{symbol}", 100 + rng.gauss(0, 1))


def main():
    rng = random.Random(1)
    desk = Desk(["AAA", "BBB", "CCC", "DDD", "EEE"])
    for click in range(1900):
        desk.open_view(rng)
        desk.tick(rng)
        time.sleep(0.014)
        if click % 150 == 0:
            print("click", click, "views", len(desk.views))


if __name__ == "__main__":
    main()
