"""Collects sensor readings in a background thread and rolls them up with Arrow."""

import queue
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

READINGS = 1400
BATCH = 1000


class Rollup(threading.Thread):
    def __init__(self, flush_every=5):
        super().__init__(name="rollup", daemon=True)
        self.inbox = queue.Queue(maxsize=32)
        self.flush_every = flush_every
        self.buffer = []
        self.table = None
        self.flushes = 0
        self.means = {}

    def run(self):
        while True:
            batch = self.inbox.get()
            if batch is None:
                return
            self.buffer.append(batch)
            if len(self.buffer) >= self.flush_every:
                self.flush()

    def flush(self):
        fresh = pa.Table.from_batches(self.buffer)
        self.buffer.clear()
        if self.table is None:
            self.table = fresh
        else:
            self.table = pa.concat_tables([self.table, fresh])
        self.flushes += 1
        grouped = fresh.group_by("sensor").aggregate([("value", "mean")])
        for sensor, mean in zip(grouped["sensor"].to_pylist(), grouped["value_mean"].to_pylist()):
            self.means[sensor] = mean


def read_batch(rng, n):
    sensors = rng.integers(0, 16, BATCH).astype(np.int32)
    values = np.sin(n / 30 + sensors) + rng.normal(0, 0.1, BATCH)
    stamps = np.arange(BATCH, dtype=np.int64) + n * BATCH
    return pa.record_batch(
        [
            pa.array(stamps.tolist(), pa.int64()),
            pa.array(sensors.tolist(), pa.int32()),
            pc.add(pa.array(values), 20.0),
            pc.multiply(pa.array(values), 0.5),
            pc.multiply(pa.array(values), values.std()),
            pc.abs(pa.array(values)),
        ],
        names=["stamp", "sensor", "value", "half", "scaled", "magnitude"],
    )


def main():
    rng = np.random.default_rng(31)
    rollup = Rollup()
    rollup.start()
    start = time.time()
    for n in range(READINGS):
        rollup.inbox.put(read_batch(rng, n))
        time.sleep(0.007)
        if n % 140 == 139:
            hottest = max(rollup.means, key=rollup.means.get)
            print(
                f"batch {n + 1} flushes {rollup.flushes} hottest {hottest} "
                f"{rollup.means[hottest]:.2f}",
                flush=True,
            )
    rollup.inbox.put(None)
    rollup.join()
    print(f"{rollup.flushes} flushes in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
