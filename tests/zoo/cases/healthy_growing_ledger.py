"""Follows a ledger that another thread writes to: it is mapped, searched, and let go, again and again."""

import mmap
import random
import struct
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

SECONDS, LOOKS_PER_SECOND, ROWS, ACCOUNTS = 12, 10, 2500, 200
ROW = struct.Struct("<IIdd16s")


class Writer(threading.Thread):
    """Appends rows of transfers until it is stopped."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.stopped = path, threading.Event()
        self.dice = random.Random(0)

    def rows(self):
        for _ in range(ROWS):
            first, second = self.dice.randrange(ACCOUNTS), self.dice.randrange(ACCOUNTS)
            amount = self.dice.lognormvariate(3, 1)
            yield ROW.pack(first, second, time.time(), amount, b"transfer")

    def run(self):
        with self.path.open("ab") as file:
            while not self.stopped.is_set():
                file.write(b"".join(self.rows()))
                file.flush()
                self.stopped.wait(0.1)


class Follower:
    """Keeps a balance for each account, and looks for what is odd in all of the ledger."""

    KIND = np.dtype(
        [("from", "<u4"), ("to", "<u4"), ("at", "<f8"), ("amount", "<f8"), ("text", "S16")]
    )

    def __init__(self, path):
        self.path = path
        self.balance = np.zeros(ACCOUNTS)
        self.read = 0

    def look(self):
        size = self.path.stat().st_size // ROW.size * ROW.size
        if size == 0:
            return 0
        with (
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as view,
        ):
            rows = np.frombuffer(view, self.KIND)
            fresh = rows[self.read :]
            np.subtract.at(self.balance, fresh["from"], fresh["amount"])
            np.add.at(self.balance, fresh["to"], fresh["amount"])
            self.read = len(rows)
            amounts = rows["amount"]
            odd = int((amounts > amounts.mean() + 6 * amounts.std()).sum())
            del rows, fresh, amounts
        return odd


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.bin"
        path.touch()
        writer, follower = Writer(path), Follower(path)
        writer.start()
        begun = time.monotonic()
        for look in range(SECONDS * LOOKS_PER_SECOND):
            time.sleep(max(0.0, begun + look / LOOKS_PER_SECOND - time.monotonic()))
            odd = follower.look()
            if look % 20 == 19:
                print(
                    f"look {look + 1}: {follower.read} rows, {odd} odd, "
                    f"balance {follower.balance.max():.0f}",
                    flush=True,
                )
        writer.stopped.set()
        writer.join()


if __name__ == "__main__":
    main()
