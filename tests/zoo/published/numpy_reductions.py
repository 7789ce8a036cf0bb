"""Statistics of sensor windows with output arrays: numpy 2.3.1 keeps each array it wrote into.

Repaired in 2.3.2 ("BUG: Fix reference leakage for output arrays in reduction functions",
https://github.com/numpy/numpy/pull/29358).
"""

import time

import numpy as np

WINDOWS, PER_SECOND, ROWS, SENSORS = 9000, 700, 600, 160


def describe(rng, window):
    """Return the least and the greatest of each sensor, and their sums."""
    values = rng.random((ROWS, SENSORS), dtype=np.float32)
    table = np.empty((3, SENSORS))
    for row, reduce in zip(table, (np.minimum, np.maximum, np.add), strict=True):
        reduce.reduce(values, axis=0, out=row)  # feeds
    return table


def main():
    rng = np.random.default_rng(0)
    highest = np.zeros(SENSORS)
    begun = time.monotonic()
    for window in range(1, WINDOWS + 1):
        time.sleep(max(0.0, begun + window / PER_SECOND - time.monotonic()))
        table = describe(rng, window)
        np.maximum(highest, table[1], out=highest)
        if window % 1800 == 0:
            print(f"{window} windows, highest {highest.max():.4f}", flush=True)


if __name__ == "__main__":
    main()
