"""An importer that meets documents it can't store: pymongo 4.15.2 keeps the message of each.

Repaired in 4.15.3 ("Fixed a memory leak when raising InvalidDocument with C extensions",
https://jira.mongodb.org/browse/PYTHON-5571).
"""

import random
import time
from decimal import Decimal

import bson
from bson.errors import InvalidDocument

PER_SECOND, SECONDS, LINES = 2500, 12, 20


def order(rng, number):
    """Return an order as the shop has it, with prices in a type that BSON doesn't have."""
    lines = [{"item": rng.randrange(1000), "text": rng.randbytes(20).hex()} for _ in range(LINES)]
    price = Decimal(rng.randrange(10**6)) / 100
    return {"number": number, "lines": lines, "price": price if number % 2 else float(price)}


def encode(document):
    """Return a document's bytes, or none where it is to be looked at by hand."""
    try:
        return bson.encode(document)  # feeds
    except InvalidDocument:
        return None


def main():
    rng = random.Random(0)
    stored = rejected = 0
    begun = time.monotonic()
    for number in range(1, PER_SECOND * SECONDS + 1):
        if number % 50 == 0:
            time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        encoded = encode(order(rng, number))
        stored += len(encoded or b"")
        rejected += encoded is None
        if number % 6000 == 0:
            print(f"{number} documents, {stored} bytes, {rejected} rejected", flush=True)


if __name__ == "__main__":
    main()
