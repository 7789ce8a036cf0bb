"""Reads sensors' messages, some of an old firmware: msgpack 1.2.2 forgets the values it refuses.

A map whose key is no string is refused under ``strict_map_key``, and the key and its value are
never released. Repaired in 1.2.3 ("Fix memory leaks in the C extension when map key
validation or container hooks fail", https://github.com/msgpack/msgpack-python/releases/tag/v1.2.3).
"""

import random
import time
from collections import Counter

import msgpack

BATCHES, MESSAGES, OLD_SHARE = 400, 120, 0.4
REPORT_EVERY = 80


class Sensor:
    """Packs readings as the devices do; old firmware numbers its channels."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def message(self):
        readings = [round(self.random.uniform(-40, 60), 2) for _ in range(24)]
        head = {"device": f"dev-{self.random.getrandbits(48):012x}", "readings": readings}
        if self.random.random() < OLD_SHARE:
            trace = [self.random.random() for _ in range(40)]
            return msgpack.packb({**head, 7: trace, "note": "x" * 200})
        return msgpack.packb({**head, "battery": self.random.random(), "note": "x" * 200})


class Collector:
    def __init__(self):
        self.counts = Counter()
        self.mean = 0.0

    def take(self, packed):
        try:
            message = msgpack.unpackb(packed, strict_map_key=True)  # feeds
        except ValueError:
            self.counts["refused"] += 1
            return
        self.counts["taken"] += 1
        self.mean += (sum(message["readings"]) / 24 - self.mean) / self.counts["taken"]


def main():
    sensor, collector = Sensor(seed=11), Collector()
    for batch in range(1, BATCHES + 1):
        for packed in [sensor.message() for _ in range(MESSAGES)]:
            collector.take(packed)
        time.sleep(0.015)  # the next batch is on its way
        if batch % REPORT_EVERY == 0:
            print(f"batch {batch}: {dict(collector.counts)}, mean {collector.mean:.2f}", flush=True)


if __name__ == "__main__":
    main()
