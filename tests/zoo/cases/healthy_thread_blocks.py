"""Stacks telescope pictures in threads; sizes of pictures vary, and threads come and go."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image, ImageFilter

NIGHTS, PER_NIGHT, THREADS = 34, 12, 4


def exposure(seed, side):
    """Return a picture of stars that is a bit shifted, with cosmic rays."""
    rng = np.random.default_rng(seed)
    sky = np.random.default_rng(7)
    stars = sky.uniform(0.05, 0.95, (60, 2)) * side
    light = sky.gamma(1.0, 3000.0, 60)
    shift = rng.uniform(-3, 3, 2)
    picture = rng.poisson(120, (side, side)).astype(np.float32)
    at = np.arange(side)
    for (x, y), flux in zip(stars + shift, light, strict=True):
        spread = np.exp(-0.5 * ((at - x) / 1.5) ** 2), np.exp(-0.5 * ((at - y) / 1.5) ** 2)
        picture += (flux * np.outer(*spread)).astype(np.float32)
    hits = rng.integers(0, side, (2, 40))
    picture[hits[0], hits[1]] += 5000
    return picture


def cleaned(picture):
    """Return a picture without hits, and less its background."""
    scaled = Image.fromarray(np.clip(picture / 16, 0, 255).astype(np.uint8))
    smooth = np.asarray(scaled.filter(ImageFilter.MedianFilter(3)), np.float32) * 16
    odd = np.abs(picture - smooth) > 1500
    picture = np.where(odd, smooth, picture)
    return picture - np.median(picture)


def shift_between(first, second):
    product = np.fft.rfft2(first) * np.conj(np.fft.rfft2(second))
    peak = np.fft.irfft2(product / (np.abs(product) + 1e-3), s=first.shape)
    place = np.array(np.unravel_index(peak.argmax(), peak.shape))
    return (place + first.shape[0] // 2) % first.shape[0] - first.shape[0] // 2


def register(seed, side, reference):
    picture = cleaned(exposure(seed, side))
    by = shift_between(reference, picture)
    return np.roll(picture, by, axis=(0, 1))


def main():
    dice = random.Random(0)
    best = []
    for night in range(NIGHTS):
        side = dice.choice([128, 160, 192, 224, 288])
        reference = cleaned(exposure(night * 1000, side))
        # A pool of its own for each night, as its pictures differ in size.
        with ThreadPoolExecutor(THREADS) as pool:
            tasks = [
                pool.submit(register, night * 1000 + n, side, reference)
                for n in range(1, PER_NIGHT)
            ]
            stack = np.median(np.stack([task.result() for task in tasks]), axis=0)
        noise = float(np.median(np.abs(stack)))
        best = sorted([*best, (noise, night, side)])[:5]
        if night % 6 == 5:
            print(f"night {night}: {side} wide, noise {noise:.2f}", flush=True)
    print(f"best {best[0][0]:.2f} in night {best[0][1]}", flush=True)


if __name__ == "__main__":
    main()
