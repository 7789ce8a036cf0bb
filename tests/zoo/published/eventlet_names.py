"""A gateway that tells names from addresses: eventlet 0.33.3 keeps each failed look-up's frames.

One exception of the module is raised time and again, and its traceback grows. Repaired in 0.34.1
("Fix memory leak in greendns", https://github.com/eventlet/eventlet/issues/810).
"""

import random
from collections import Counter

import eventlet
from eventlet.green import socket, time

REQUESTS, PER_SECOND, WORKERS = 6000, 500, 16
REPORT_EVERY = 1000
ZONES = ("build", "data", "cache", "mail")


class Request:
    """A request to pass on, as it came from the wire."""

    def __init__(self, number, rnd):
        self.number = number
        if rnd.random() < 0.2:
            self.host = ".".join(str(rnd.randrange(1, 255)) for _ in range(4))
        else:
            self.host = f"node-{rnd.randrange(500)}.{rnd.choice(ZONES)}.internal"
        self.body = rnd.randbytes(rnd.randint(2000, 4000))


class Gateway:
    """Passes requests on: those to addresses straight, those to names by the zone's own proxy."""

    def __init__(self):
        self.pool = eventlet.GreenPool(WORKERS)
        self.routes, self.bytes = Counter(), Counter()

    def route(self, request):
        """Return by which way a request goes."""
        try:
            socket.getaddrinfo(  # feeds
                request.host, 443, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST
            )
        except socket.gaierror:
            return request.host.split(".")[1]
        return "direct"

    def handle(self, request):
        route = self.route(request)
        time.sleep(0.002)  # the upstream's answering time
        self.routes[route] += 1
        self.bytes[route] += len(request.body)


def main():
    rnd, gateway = random.Random(0), Gateway()
    begun = time.time()
    for number in range(1, REQUESTS + 1):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.time()))
        gateway.pool.spawn_n(gateway.handle, Request(number, rnd))
        if number % REPORT_EVERY == 0:
            print(f"{number} requests, {dict(gateway.routes)}", flush=True)
    gateway.pool.waitall()
    print(dict(gateway.bytes))


if __name__ == "__main__":
    main()
