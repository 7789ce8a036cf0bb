"""A gateway that passes traces on: sentry-sdk 2.42.1 registers a processor for each request.

Repaired by https://github.com/getsentry/sentry-python/pull/6271 (issue 6267).
"""

import json
import random

from opentelemetry.sdk.trace import TracerProvider
from sentry_sdk.integrations.opentelemetry.propagator import SentryPropagator

REQUESTS = 260000


class Gateway:
    def __init__(self):
        self.tracer = TracerProvider().get_tracer("gateway")
        self.propagator = SentryPropagator()
        self.served = {}

    def handle(self, path, body):
        with self.tracer.start_as_current_span(path) as span:
            headers = {"content-type": "application/json"}
            self.propagator.inject(headers)  # feeds
            content = json.loads(body)
            span.set_attribute("items", len(content["items"]))
            self.served[path] = self.served.get(path, 0) + 1
            return headers, sum(content["items"])


def main():
    rng = random.Random(0)
    gateway = Gateway()
    for number in range(1, REQUESTS + 1):
        items = [rng.randrange(1000) for _ in range(30)]
        gateway.handle(f"/orders/{number % 20}", json.dumps({"items": items}))
        if number % 52000 == 0:
            print(f"{number} requests", flush=True)


if __name__ == "__main__":
    main()
