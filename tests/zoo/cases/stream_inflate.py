"""Collects compressed telemetry of many devices: a decompressor per connection."""

import random
import time
import zlib


class StreamTable:
    def __init__(self):
        self.decoders = {}
        self.readings = 0

    def feed(self, connection, data):
        decoder = self.decoders.get(connection)
        if decoder is None:
            decoder = self.decoders[connection] = zlib.decompressobj()  # feeds
        text = decoder.decompress(data)
        self.readings += text.count(b";")
        return decoder.eof


def device_upload(rng):
    body = b"".join(b"%d:%d;" % (rng.randrange(1000), rng.randrange(100)) for _ in range(9000))
    packed = zlib.compress(body, 1)
    for start in range(0, len(packed), 4096):
        yield packed[start : start + 4096]


def main():
    rng = random.Random(0)
    table = StreamTable()
    uploads = [list(device_upload(rng)) for _ in range(12)]
    for connection in range(1200):
        for part in uploads[connection % 12]:
            table.feed(connection, part)
        time.sleep(0.009)
        if connection % 200 == 0:
            print("connection", connection, "readings", table.readings)


if __name__ == "__main__":
    main()
