"""A worker that traces its messages, with tracing off: sentry-sdk 0.10.1 keeps each finished span.

Repaired in 0.10.2 ("Fix a memory leak in the new tracing feature when it is not enabled",
https://github.com/getsentry/sentry-python/blob/master/CHANGELOG.md).
"""

import json
import random
import time

import sentry_sdk

PER_SECOND, SECONDS = 1200, 10


def handle(hub, number, message):
    with hub.span(op="message", description=f"order {number}") as span:  # feeds
        order = json.loads(message)
        span.set_data("items", order["items"])
        return sum(order["items"])


def main():
    rng = random.Random(0)
    sentry_sdk.init()
    hub, total, begun = sentry_sdk.Hub.current, 0, time.monotonic()
    with hub.span(op="worker"):
        for number in range(1, PER_SECOND * SECONDS + 1):
            if number % 40 == 0:
                time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            items = [rng.randrange(1000) for _ in range(30)]
            total += handle(hub, number, json.dumps({"items": items}))
            if number % 2400 == 0:
                print(f"{number} messages, {total}", flush=True)


if __name__ == "__main__":
    main()
