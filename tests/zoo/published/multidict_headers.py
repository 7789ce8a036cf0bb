"""A proxy that adds headers to responses: multidict 6.3.1 keeps the lists it is made from.

Repaired in 6.3.2 ("Resolved a memory leak by ensuring proper reference count decrementation",
https://github.com/aio-libs/multidict/issues/1121).
"""

import random
import time

from multidict import CIMultiDict

PER_SECOND, SECONDS = 4500, 10


def upstream_headers(rng, number):
    """Return what an upstream server sends, as its parser gives it."""
    cookies = [("Set-Cookie", f"part{i}={rng.randbytes(16).hex()}") for i in range(4)]
    return [("Content-Type", "text/html"), ("ETag", f'"{number}"'), *cookies]


def forward(rng, number):
    headers = CIMultiDict(upstream_headers(rng, number))  # feeds
    headers["Via"] = "1.1 proxy"
    headers.popall("ETag", None)
    return sum(len(name) + len(value) for name, value in headers.items())


def main():
    rng = random.Random(0)
    total = 0
    begun = time.monotonic()
    for number in range(1, PER_SECOND * SECONDS + 1):
        if number % 100 == 0:
            time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        total += forward(rng, number)
        if number % 9000 == 0:
            print(f"{number} responses, {total} characters", flush=True)


if __name__ == "__main__":
    main()
