"""A geocoding service with a bounded cache that fills for most of the run."""

import random
import time

import cachetools


class Geocoder:
    def __init__(self):
        self.cache = cachetools.LRUCache(maxsize=3000)
        self.calls = 0

    def polygon(self, address):
        self.calls += 1
        rng = random.Random(address)
        return rng.randbytes(12 * 1024)

    def locate(self, address):
        try:
            return self.cache[address]
        except KeyError:
            value = self.cache[address] = self.polygon(address)
            return value


def main():
    rng = random.Random(4)
    geocoder = Geocoder()
    checksum = 0
    for tick in range(900):
        for _ in range(6):
            address = rng.randrange(12_000)
            checksum += geocoder.locate(address)[0]
        time.sleep(0.013)
        if tick % 100 == 0:
            print("tick", tick, "cached", len(geocoder.cache), "calls", geocoder.calls)
    print(checksum)


if __name__ == "__main__":
    main()
