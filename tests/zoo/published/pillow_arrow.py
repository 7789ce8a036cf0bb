"""Thumbnails handed to Arrow tables: Pillow 11.2.1 keeps the pixels of each picture handed over.

Repaired in 11.3.0 ("Fix memory leak in arrow export using array structure",
https://github.com/python-pillow/Pillow/pull/8953).
"""

import time

import numpy as np
import pyarrow as pa
from PIL import Image

PICTURES, PER_SECOND, SIDE, THUMBNAIL = 900, 70, 400, 96


def picture(rng):
    """Return a photograph, as far as this program is concerned."""
    return Image.fromarray(rng.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8))


def thumbnail_pixels(rng):
    small = picture(rng).convert("RGB").resize((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    return pa.array(small)  # feeds


def main():
    rng = np.random.default_rng(0)
    total, begun = 0, time.monotonic()
    for number in range(1, PICTURES + 1):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        total += len(thumbnail_pixels(rng))
        if number % 180 == 0:
            print(f"{number} pictures, {total} pixels", flush=True)


if __name__ == "__main__":
    main()
