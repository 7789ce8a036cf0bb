"""A service that takes orders from a queue, prices them, and keeps the latest confirmation of each
customer.

No torch, no training: orders come as they come, until the service is told to end.
"""

import json
import random
import time


class Orders:
    def __init__(self, seconds):
        self.random = random.Random(3)
        self.end = time.monotonic() + seconds

    def __iter__(self):
        number = 0
        while time.monotonic() < self.end:
            time.sleep(self.random.uniform(0.002, 0.01))
            items = [self.random.randrange(500) for _ in range(40)]
            yield {"number": number, "items": items, "customer": self.random.randrange(60)}
            number += 1


class Service:
    def __init__(self):
        self.prices = {item: 1.0 + item / 7 for item in range(500)}
        self.latest = {}
        self.handled = 0

    def handle(self, order):
        lines = [f"{item}: {self.prices[item]:.2f}" for item in order["items"]]
        text = json.dumps({"order": order["number"], "lines": lines}) + " " * 4096
        self.latest[order["customer"]] = text
        self.handled += 1


def main(seconds=18):
    service = Service()
    for order in Orders(seconds):
        service.handle(order)
    print("handled", service.handled)


if __name__ == "__main__":
    main()
