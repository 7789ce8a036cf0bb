"""Registers large images by phase correlation, with large temporaries for each pair."""

import time

import numpy as np


def shift_between(a, b):
    fa, fb = np.fft.rfft2(a), np.fft.rfft2(b)
    cross = fa * fb.conj()
    cross /= np.maximum(np.abs(cross), 1e-9)
    surface = np.fft.irfft2(cross, s=a.shape)
    return np.unravel_index(surface.argmax(), surface.shape)


def main():
    rng = np.random.default_rng(1)
    shifts = []
    for pair in range(30):
        size = 1024 if pair % 5 else 2048
        image = rng.random((size, size))
        moved = np.roll(image, (pair * 3, pair * 7), axis=(0, 1))
        row, column = shift_between(moved, image)
        shifts.append((int(row), int(column)))
        time.sleep(0.1)
        if pair % 5 == 0:
            print("pair", pair, "shift", shifts[-1])
    print(np.mean(shifts, axis=0))


if __name__ == "__main__":
    main()
