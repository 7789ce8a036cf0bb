"""Renders map tiles in a pool whose workers are replaced; only names come back."""

import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

glyphs = {}


def glyph(code):
    if code not in glyphs:
        glyphs[code] = np.random.default_rng(code).random((64, 64)).astype(np.float32)
    return glyphs[code]


def render(job):
    number, folder = job
    tile = np.zeros((256, 256), np.float32)
    for k in range(6):
        r, c = (number * 31 + k * 57) % 192, (number * 17 + k * 91) % 192
        tile[r : r + 64, c : c + 64] += glyph((number * 6 + k) % 4000)
    path = Path(folder) / f"tile{number}.npy"
    np.save(path, tile.astype(np.float16))
    time.sleep(0.03)
    return path.name


def main():
    with tempfile.TemporaryDirectory() as folder:
        names = []
        context = multiprocessing.get_context("fork")
        with context.Pool(2, maxtasksperchild=60) as pool:
            for name in pool.imap(render, ((n, folder) for n in range(600))):
                names.append(name)
                if len(names) % 100 == 0:
                    print(len(names), "tiles", name)


if __name__ == "__main__":
    main()
