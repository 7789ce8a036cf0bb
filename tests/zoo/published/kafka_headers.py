"""A telemetry gateway: confluent-kafka 2.13.0 keeps the headers of messages that it refuses.

Repaired in 2.13.2 (https://github.com/confluentinc/confluent-kafka-python/issues/2167).
"""

import json
import random
import time
from collections import Counter

from confluent_kafka import Producer

TICKS = 1200
TICK_SECONDS = 0.022
MACHINES = 40
QUEUE_LIMIT = 60
REPORT_EVERY = 40
TOPIC = "plant.telemetry"


class Machine:
    def __init__(self, number, rnd):
        self.name = f"press-{number:03d}"
        self.rnd = rnd
        self.temperature = rnd.uniform(40.0, 60.0)
        self.sequence = 0

    def burst(self):
        """The readings that piled up since the last tick."""
        for _ in range(self.rnd.randint(1, 4)):
            self.sequence += 1
            self.temperature += self.rnd.uniform(-0.5, 0.5)
            yield {
                "machine": self.name,
                "seq": self.sequence,
                "temp": round(self.temperature, 2),
                "load": round(self.rnd.random(), 3),
                "wave": self.rnd.randbytes(420).hex(),
            }


class TelemetryPublisher:
    def __init__(self, topic):
        self.topic = topic
        self.stats = Counter()
        self.latest = {}
        self.producer = Producer(
            {
                "test.mock.num.brokers": 1,
                "bootstrap.servers": "mock",
                "queue.buffering.max.messages": QUEUE_LIMIT,
                "linger.ms": 20,
                "log_level": 2,
            }
        )

    def delivered(self, error, message):
        self.stats["failed" if error is not None else "delivered"] += 1

    @staticmethod
    def headers(reading, rnd):
        trace = f"{rnd.getrandbits(128):032x}"
        span = f"{rnd.getrandbits(64):016x}"
        return [
            ("traceparent", f"00-{trace}-{span}-01"),
            ("source", reading["machine"]),
            ("schema", "plant.telemetry.Reading/3"),
            ("content-type", "application/json"),
        ]

    def publish(self, reading, rnd):
        value = json.dumps(reading).encode()
        try:
            self.producer.produce(  # feeds
                self.topic,
                value=value,
                key=reading["machine"],
                partition=0,
                headers=self.headers(reading, rnd),
                on_delivery=self.delivered,
            )
        except BufferError:
            self.stats["shed"] += 1
            self.latest[reading["machine"]] = reading
            return False
        self.stats["queued"] += 1
        self.latest.pop(reading["machine"], None)
        return True

    def serve_callbacks(self):
        self.producer.poll(0)

    def close(self):
        self.producer.flush(10)


class Plant:
    """Shift after shift of bursts; the seed makes the run repeatable."""

    def __init__(self, seed):
        self.rnd = random.Random(seed)
        self.machines = [Machine(n, self.rnd) for n in range(MACHINES)]

    def readings(self):
        order = list(self.machines)
        self.rnd.shuffle(order)
        for machine in order:
            yield from machine.burst()


def main():
    started = time.time()
    plant = Plant(seed=815)
    publisher = TelemetryPublisher(TOPIC)
    for tick in range(1, TICKS + 1):
        deadline = time.time() + TICK_SECONDS
        for reading in plant.readings():
            publisher.publish(reading, plant.rnd)
        publisher.serve_callbacks()
        rest = deadline - time.time()
        if rest > 0:
            time.sleep(rest)
        if tick % REPORT_EVERY == 0:
            s = publisher.stats
            print(
                f"tick {tick}/{TICKS}  queued {s['queued']}  delivered {s['delivered']}  "
                f"shed {s['shed']}  stale {len(publisher.latest)}  "
                f"{time.time() - started:5.1f} s",
                flush=True,
            )
    publisher.close()
    print("summary:", dict(publisher.stats))


if __name__ == "__main__":
    main()
