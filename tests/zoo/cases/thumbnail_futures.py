"""A thumbnail service with a thread pool; it waits for its futures at shutdown."""

import concurrent.futures
import io
import time

import numpy as np
from PIL import Image


def make_thumbnail(pixels):
    image = Image.fromarray(pixels)
    image.thumbnail((96, 96))
    out = io.BytesIO()
    image.save(out, "BMP")
    return out.getvalue()


class ThumbnailService:
    def __init__(self, workers):
        self.pool = concurrent.futures.ThreadPoolExecutor(workers)
        self.futures = []
        self.bytes_sent = 0

    def sent(self, future):
        self.bytes_sent += len(future.result())

    def submit(self, pixels):
        future = self.pool.submit(make_thumbnail, pixels)
        future.add_done_callback(self.sent)
        self.futures.append(future)  # feeds
        return future

    def close(self):
        concurrent.futures.wait(self.futures)
        self.pool.shutdown()


def main():
    rng = np.random.default_rng(0)
    service = ThumbnailService(workers=2)
    base = rng.integers(0, 255, (256, 256, 3), dtype=np.uint8)
    for request in range(1600):
        service.submit(np.roll(base, request, axis=0))
        time.sleep(0.007)
        if request % 200 == 0:
            print("request", request, "sent", service.bytes_sent)
    service.close()


if __name__ == "__main__":
    main()
