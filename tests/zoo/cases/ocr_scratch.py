"""Reads numbers off scanned forms in a pool of threads, each with buffers of its own."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

FORMS, PER_SECOND, WIDTH, HEIGHT = 1100, 80, 320, 96
_scratch = threading.local()


def draw_form(number):
    """Return a scanned form: a number, a bit turned, with dust."""
    rng = np.random.default_rng(number)
    text = f"{rng.integers(10**7):07d}"
    picture = Image.new("L", (WIDTH, HEIGHT), 235)
    pen = ImageDraw.Draw(picture)
    for place, digit in enumerate(text):
        pen.text((20 + 40 * place, 30), digit, fill=20, font_size=36)
    picture = picture.rotate(float(rng.uniform(-2, 2)), fillcolor=235)
    pixels = np.asarray(picture, np.float32) + rng.normal(0, 14, (HEIGHT, WIDTH))
    return text, Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


class Templates:
    """What each digit looks like, blurred."""

    def __init__(self, size=32):
        self.size = size
        self.digits = np.stack([self.picture(str(digit)) for digit in range(10)])

    def picture(self, digit):
        one = Image.new("L", (40, 48), 0)
        ImageDraw.Draw(one).text((8, 2), digit, fill=255, font_size=36)
        box = one.getbbox()
        small = one.crop(box).resize((self.size, self.size)).filter(ImageFilter.GaussianBlur(1))
        return self.normal(np.asarray(small, np.float32).ravel())

    @staticmethod
    def normal(values):
        values = values - values.mean()
        return values / (np.linalg.norm(values) + 1e-6)


def scratch():
    """Return this thread's buffers."""
    if not hasattr(_scratch, "ink"):
        _scratch.ink = np.empty((HEIGHT, WIDTH), np.float32)
        _scratch.pieces = []
    return _scratch


def segments(ink):
    """Yield where columns with ink begin and end."""
    filled = np.concatenate([[False], ink.max(0) > 0.4, [False]])
    edges = np.flatnonzero(filled[1:] != filled[:-1])
    yield from ((a, b) for a, b in edges.reshape(-1, 2) if b - a >= 4)


def read(number, templates):
    truth, form = draw_form(number)
    mine = scratch()
    smooth = form.filter(ImageFilter.MedianFilter(3))
    np.subtract(1.0, np.asarray(smooth, np.float32) / 235, out=mine.ink)
    begin = len(mine.pieces)
    for left, right in segments(mine.ink):
        rows = np.flatnonzero(mine.ink[:, left:right].max(1) > 0.4)
        piece = mine.ink[rows[0] : rows[-1] + 1, left:right]
        shape = (templates.size, templates.size)
        scaled = Image.fromarray(piece).resize(shape, Image.Resampling.BILINEAR)
        mine.pieces.append(templates.normal(np.asarray(scaled).ravel()))
    found = np.array(mine.pieces[begin:]).reshape(-1, templates.size**2)
    digits = (found @ templates.digits.T).argmax(1)
    return "".join(map(str, digits)) == truth


def main():
    templates, right, begun = Templates(), 0, time.monotonic()
    with ThreadPoolExecutor(2, thread_name_prefix="ocr") as pool:
        for first in range(0, FORMS, 20):
            time.sleep(max(0.0, begun + first / PER_SECOND - time.monotonic()))
            some = range(first, first + 20)
            right += sum(pool.map(read, some, [templates] * len(some)))
            if first % 100 == 80:
                print(f"{first + 20} forms, {right} read rightly", flush=True)


if __name__ == "__main__":
    main()
