"""Delivers events to a flaky endpoint; failed ones are retried and noted for the operator."""

import collections
import json
import random
import time
from typing import NamedTuple


class Attempt(NamedTuple):
    event: int
    at: float
    body: bytes
    reason: str


class Endpoint:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.accepted = 0

    def post(self, body):
        if self.rng.random() < 0.3:
            raise TimeoutError("no answer")
        self.accepted += len(body)


class Outbox:
    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.pending = collections.deque()
        self.attempts = []

    def put(self, number, event):
        self.pending.append((number, event))

    def deliver(self):
        number, event = self.pending.popleft()
        body = json.dumps(event).encode()
        try:
            self.endpoint.post(body)
        except TimeoutError as error:
            self.attempts.append(Attempt(number, time.time(), body, str(error)))  # feeds
            self.pending.append((number, event))

    def flush(self):
        while self.pending:
            self.deliver()


def make_event(rng, number):
    return {
        "id": number,
        "lines": [{"sku": rng.randrange(10**6), "price": rng.random()} for _ in range(200)],
    }


def main():
    rng = random.Random(0)
    outbox = Outbox(Endpoint(1))
    for minute in range(300):
        for number in range(minute * 25, minute * 25 + 25):
            outbox.put(number, make_event(rng, number))
        outbox.flush()
        time.sleep(0.03)
        if minute % 50 == 0:
            print("minute", minute, "accepted", outbox.endpoint.accepted)


if __name__ == "__main__":
    main()
