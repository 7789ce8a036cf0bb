"""Takes readings of meters over asyncio and writes them to a database when they have gathered."""

import asyncio
import os
import random
import sqlite3
import tempfile
import time
from dataclasses import dataclass, field

METERS, PER_SECOND, SECONDS, QUIET, MOST = 60, 400, 15, 0.3, 1600


@dataclass
class Reading:
    meter: int
    at: float
    watts: float
    spectrum: bytes = field(repr=False)


class Writer:
    """Writes rows once no new ones come for a while, or when too many wait."""

    def __init__(self, path):
        self.connection = sqlite3.connect(path)
        self.connection.execute(
            "CREATE TABLE reading (meter INT, at REAL, watts REAL, spectrum BLOB)"
        )
        self.rows = []
        self.timer = None
        self.flushes = self.written = 0

    def add(self, reading):
        self.rows.append(reading)
        if self.timer is not None:
            self.timer.cancel()
        if len(self.rows) >= MOST:
            self.flush()
        else:
            self.timer = asyncio.get_running_loop().call_later(QUIET, self.flush)

    def flush(self):
        self.timer = None
        rows, self.rows = self.rows, []
        if not rows:
            return
        with self.connection:
            self.connection.executemany(
                "INSERT INTO reading VALUES (?, ?, ?, ?)",
                ((r.meter, r.at, r.watts, r.spectrum) for r in rows),
            )
            self.connection.execute("DELETE FROM reading WHERE at < ?", (rows[-1].at - 6.0,))
        self.flushes += 1
        self.written += len(rows)


class Meter:
    """Reports its load, and how it is spread over frequencies."""

    def __init__(self, number):
        self.number, self.dice = number, random.Random(number)
        self.load = self.dice.uniform(100, 2000)

    def read(self):
        self.load = max(0.0, self.load + self.dice.gauss(0, 30))
        return Reading(self.number, time.monotonic(), self.load, self.dice.randbytes(1200))


async def collect(meters, writer):
    dice, loop = random.Random(0), asyncio.get_running_loop()
    begun, sums = loop.time(), [0.0] * METERS
    for number in range(PER_SECOND * SECONDS):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - loop.time()))
        reading = dice.choice(meters).read()
        sums[reading.meter] += reading.watts
        writer.add(reading)
        if number % 1000 == 999:
            # Every now and then a short quiet time.
            await asyncio.sleep(0.0)
            print(f"{number + 1} read, {writer.flushes} flushes", flush=True)
    return sums


async def main():
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(os.path.join(folder, "readings.db"))
        sums = await collect([Meter(number) for number in range(METERS)], writer)
        writer.flush()
        print(f"{writer.written} written, mean {sum(sums) / writer.written:.1f} W", flush=True)
        writer.connection.close()


if __name__ == "__main__":
    asyncio.run(main())
