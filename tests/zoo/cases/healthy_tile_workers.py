"""Computes the relief of a landscape tile by tile in a pool whose workers are replaced at times."""

import multiprocessing as mp
import time

import numpy as np

TILES, PER_SECOND, SIDE, TASKS_PER_WORKER = 240, 20, 192, 40
_loaded = {}


def heights(column, row):
    """Return a tile with the rim that its neighbours share."""
    key = column, row
    if key not in _loaded:
        x, y = np.meshgrid(np.arange(SIDE) + column * SIDE, np.arange(SIDE) + row * SIDE)
        hills = sum(np.sin(x / (7 + k) + k * k) * np.cos(y / (9 + 2 * k)) * k for k in range(1, 9))
        _loaded[key] = hills.astype(np.float32)
    return _loaded[key]


def relief(tile):
    column, row = tile
    around = np.concatenate([heights(column + c, row) for c in (-1, 0, 1)], 1)
    east, south = np.gradient(around)
    slope = np.hypot(east, south)
    light = (east - south + 1) / np.sqrt(slope**2 + 3)
    middle = light[:, SIDE : 2 * SIDE]
    return tile, float(middle.mean()), np.histogram(middle, bins=64)[0]


class Summary:
    def __init__(self):
        self.count, self.brightness, self.bins = 0, 0.0, np.zeros(64, dtype=np.int64)

    def add(self, _tile, brightness, bins):
        self.count += 1
        self.brightness += (brightness - self.brightness) / self.count
        self.bins += bins


def paced(tiles):
    begun = time.monotonic()
    for number in range(tiles):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        yield 3 * (number % 30), number // 30


def main():
    summary = Summary()
    with mp.get_context("fork").Pool(1, maxtasksperchild=TASKS_PER_WORKER) as pool:
        for result in pool.imap(relief, paced(TILES)):
            summary.add(*result)
            if summary.count % 40 == 0:
                print(f"{summary.count} tiles, brightness {summary.brightness:.3f}", flush=True)


if __name__ == "__main__":
    main()
