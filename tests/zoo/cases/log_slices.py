"""Reads a big log in chunks and remembers the lines of errors as slices of memory views."""

import os
import random
import tempfile
import time


class ErrorIndex:
    def __init__(self):
        self.lines = []
        self.bytes = 0

    def scan(self, chunk):
        view = memoryview(chunk)
        start = 0
        while (at := chunk.find(b"ERROR", start)) >= 0:
            end = chunk.find(b"\n", at)
            end = len(chunk) if end < 0 else end
            self.lines.append(view[at:end])  # feeds
            start = end
        self.bytes += len(chunk)


def write_log(path, megabytes, seed):
    rng = random.Random(seed)
    info = b"".join(
        b"2024-05-01 12:00:%02d INFO worker %d finished request in %d ms\n"
        % (i % 60, i % 8, rng.randrange(900))
        for i in range(400)
    )
    with open(path, "wb") as out:
        while out.tell() < megabytes << 20:
            for _ in range(9):
                out.write(info)
            out.write(
                b"2024-05-01 12:00:00 ERROR worker %d lost its connection\n" % rng.randrange(8)
            )


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "app.log")
        write_log(path, 16, 1)
        index = ErrorIndex()
        for rotation in range(8):
            with open(path, "rb") as log:
                while chunk := log.read(256 * 1024):
                    index.scan(chunk)
                    time.sleep(0.022)
            print("rotation", rotation, "errors", len(index.lines), "read", index.bytes)


if __name__ == "__main__":
    main()
