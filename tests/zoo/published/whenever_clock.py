"""Stamps the messages of a message queue: whenever 0.6.5 forgets a number for each time it tells.

With time-machine installed the time comes from Python's ``time.time_ns``, whose result was never
released. Repaired in 0.6.6 ("Fix potential memory leak in .now() if time-machine is installed",
https://github.com/ariebovenberg/whenever/releases/tag/0.6.6).
"""

import random
import time
from collections import deque

from whenever import Instant, hours

ROUNDS, MESSAGES, REPORT_EVERY = 600, 1000, 100


class Queue:
    """Holds the last messages with the time when each came in, and drops those that are too old."""

    def __init__(self):
        self.waiting = deque(maxlen=500)
        self.handled = 0
        self.dropped = 0

    def put(self, message):
        self.waiting.append((Instant.now(), message))  # feeds

    def handle(self):
        oldest = Instant.now() - hours(1)
        while self.waiting:
            came, _ = self.waiting.popleft()
            if came < oldest:
                self.dropped += 1
            else:
                self.handled += 1


def main():
    rnd, queue = random.Random(9), Queue()
    for number in range(1, ROUNDS + 1):
        for _ in range(MESSAGES):
            queue.put(rnd.random())
        queue.handle()
        time.sleep(0.012)  # waits for the next messages
        if number % REPORT_EVERY == 0:
            print(f"round {number}: {queue.handled} handled, {queue.dropped} dropped", flush=True)


if __name__ == "__main__":
    main()
