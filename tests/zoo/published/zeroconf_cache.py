"""Discovery of devices that come and go: zeroconf 0.24.4 keeps an empty list for each name.

Repaired in 0.24.5 ("Fixed memory leak in DNSCache",
https://github.com/python-zeroconf/python-zeroconf/pull/233).
"""

import random
import time

from zeroconf import DNSCache, DNSText, current_time_millis

CLASS_IN, TYPE_TXT, ROUNDS, ANNOUNCED, PER_SECOND = 1, 16, 360, 200, 30


def announce(rng, cache, number):
    """Put what a device says of itself into the cache."""
    name = f"sensor-{number}-{rng.getrandbits(128):032x}._telemetry._tcp.local."
    record = DNSText(name, TYPE_TXT, CLASS_IN, 120, b"room=" + name.encode() * 20)
    record.created = current_time_millis()
    cache.add(record)  # feeds


def reap(cache, seconds_later):
    """Remove what has expired, as the library's own thread does."""
    now = current_time_millis() + 1000 * seconds_later
    gone = [record for record in cache.entries() if record.is_expired(now)]
    for record in gone:
        cache.remove(record)
    return len(gone)


def main():
    rng = random.Random(0)
    cache = DNSCache()
    reaped, begun = 0, time.monotonic()
    for round_ in range(ROUNDS):
        time.sleep(max(0.0, begun + round_ / PER_SECOND - time.monotonic()))
        for number in range(ANNOUNCED):
            announce(rng, cache, round_ * ANNOUNCED + number)
        reaped += reap(cache, 121)
        if round_ % 60 == 59:
            print(f"round {round_}: {reaped} devices gone, {len(cache.cache)} names", flush=True)


if __name__ == "__main__":
    main()
