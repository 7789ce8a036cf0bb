"""Ships log lines of many containers, each as a compressed stream of its own, to a store."""

import random
import time
import zlib

SECONDS, CONTAINERS, TICKS_PER_SECOND, LINES = 13, 40, 20, 8

WORDS = [
    "request",
    "accepted",
    "rejected",
    "timeout",
    "retry",
    "upstream",
    "cache",
    "miss",
    "hit",
    "user",
    "session",
    "token",
    "worker",
    "started",
    "stopped",
    "queue",
    "depth",
    "shard",
    "replica",
    "leader",
    "follower",
    "latency",
    "bytes",
    "sent",
    "received",
]


class Container:
    """Writes lines for a while, then is replaced by another."""

    count = 0

    def __init__(self, dice):
        Container.count += 1
        self.name = f"svc-{Container.count:05d}-{dice.randrange(16**6):06x}"
        self.left = dice.randrange(30, 220)
        self.dice = dice

    def lines(self):
        self.left -= 1
        for _ in range(self.dice.randrange(LINES)):
            words = " ".join(self.dice.choices(WORDS, k=12))
            yield f"{time.time():.3f} {self.name} {words} {self.dice.random():.6f}\n"


class Store:
    """Where compressed pieces go; only sizes are remembered."""

    def __init__(self):
        self.pieces = self.size = 0

    def put(self, name, piece):
        self.pieces += 1
        self.size += len(piece)


class Shipper:
    """Compresses what comes from each container and sends what is ready."""

    def __init__(self, store):
        self.store = store
        self.streams = {}
        self.raw = 0

    def stream(self, name):
        found = self.streams.get(name)
        if found is None:
            found = self.streams[name] = zlib.compressobj(6, zlib.DEFLATED, 31, 9)
        return found

    def ship(self, name, lines):
        stream = self.stream(name)
        for line in lines:
            self.raw += len(line)
            if piece := stream.compress(line.encode()):
                self.store.put(name, piece)

    def close(self, name):
        """Send what is left of a stream."""
        self.store.put(name, self.stream(name).flush(zlib.Z_SYNC_FLUSH))


def main():
    dice = random.Random(0)
    store = Store()
    shipper = Shipper(store)
    containers = [Container(dice) for _ in range(CONTAINERS)]
    begun = time.monotonic()
    for tick in range(SECONDS * TICKS_PER_SECOND):
        time.sleep(max(0.0, begun + tick / TICKS_PER_SECOND - time.monotonic()))
        for place, container in enumerate(containers):
            shipper.ship(container.name, container.lines())
            if container.left <= 0:
                shipper.close(container.name)
                containers[place] = Container(dice)
        if tick % 40 == 39:
            print(
                f"{tick + 1} ticks, {Container.count} containers, {shipper.raw / 1e6:.2f} MB as "
                f"{store.size / 1e6:.2f} MB in {store.pieces} pieces",
                flush=True,
            )


if __name__ == "__main__":
    main()
