"""Renders thumbnails of documents in a pool whose workers are renewed after some tasks."""

import multiprocessing
import time
import zlib
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from PIL import Image, ImageDraw

PAGES, PER_SECOND, SECONDS, TASKS = 30, 32, 14, 25
_fonts: dict = {}


def glyph(letter, size):
    """Return a letter at a size; what was drawn stays until the worker ends."""
    key = letter, size
    if key not in _fonts:
        picture = Image.new("L", (4 * size, 4 * size), 255)
        ImageDraw.Draw(picture).text((size, size), letter, fill=0, font_size=2 * size)
        _fonts[key] = np.asarray(picture, np.float32) / 255
    return _fonts[key]


def page(number):
    """Return a page of text as an array."""
    rng = np.random.default_rng(number)
    size = int(rng.integers(10, 26))
    sheet = np.ones((480, 360), np.float32)
    for top in range(0, 480 - 4 * size, 2 * size):
        for left in range(0, 360 - 4 * size, 2 * size):
            letter = chr(97 + int(rng.integers(26)))
            place = slice(top, top + 4 * size), slice(left, left + 4 * size)
            sheet[place] = np.minimum(sheet[place], glyph(letter, size))
    return sheet


def thumbnail(number):
    sheet = page(number)
    picture = Image.fromarray((255 * sheet).astype(np.uint8))
    small = picture.resize((90, 120), Image.Resampling.LANCZOS)
    packed = zlib.compress(small.tobytes(), 6)
    return number, len(packed), float(sheet.mean())


def main():
    sizes, ink, begun = {}, 0.0, time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context, max_tasks_per_child=TASKS) as pool:
        waiting = []
        for number in range(PER_SECOND * SECONDS):
            time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            waiting.append(pool.submit(thumbnail, number))
            while waiting and (waiting[0].done() or len(waiting) > 16):
                done, size, mean = waiting.pop(0).result()
                sizes[done % PAGES] = size
                ink += 1 - mean
            if number % 64 == 63:
                print(f"{number + 1} asked", flush=True)
        ink += sum(1 - one.result()[2] for one in waiting)
    print(f"{sum(sizes.values())} bytes on the shelf, {ink:.2f} of ink", flush=True)


if __name__ == "__main__":
    main()
