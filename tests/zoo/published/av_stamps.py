"""Watches a small camera for motion: av 17.0.1 keeps a key for each frame that was stamped.

Repaired in 17.1.0 ("Fix memory leak when setting opaque on Frame",
https://github.com/PyAV-Org/PyAV/commit/75e68546).
"""

import av
import numpy as np

FRAMES, HEIGHT, WIDTH = 420000, 48, 64


def camera(rng):
    """Yield pictures: noise, and now and then something bright."""
    noise = [rng.integers(0, 40, (HEIGHT, WIDTH), dtype=np.uint8) for _ in range(16)]
    bright = [picture + np.uint8(150) for picture in noise]
    for number in range(FRAMES):
        pictures = bright if number % 97 == 0 else noise
        frame = av.VideoFrame.from_ndarray(pictures[number % 16], format="gray")
        frame.opaque = (number, number / 25)  # feeds
        yield frame


def main():
    moved = 0
    last = None
    for frame in camera(np.random.default_rng(0)):
        level = float(frame.to_ndarray()[::8, ::8].mean())
        number, seconds = frame.opaque
        if last is not None and abs(level - last) > 60:
            moved += 1
        last = level
        if (number + 1) % 14000 == 0:
            print(f"frame {number + 1}/{FRAMES}: {seconds:.0f} s, {moved} changes", flush=True)


if __name__ == "__main__":
    main()
