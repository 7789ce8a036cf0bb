"""Reads frames of a (simulated) thermal camera through a C-style buffer interface."""

import ctypes
import time

import numpy as np

libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

WIDTH, HEIGHT = 160, 120
FRAMES = 1500


class FrameDesc(ctypes.Structure):
    _fields_ = [
        ("seq", ctypes.c_uint64),
        ("width", ctypes.c_uint32),
        ("height", ctypes.c_uint32),
        ("pixels", ctypes.c_void_p),
    ]


class Camera:
    """Mimics the vendor SDK: the caller owns the pixel buffer of each frame."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.seq = 0
        yy, xx = np.mgrid[0:HEIGHT, 0:WIDTH]
        self.xx, self.yy = xx, yy

    def grab(self, desc):
        cx = 80 + 50 * np.cos(self.seq / 40)
        cy = 60 + 30 * np.sin(self.seq / 55)
        blob = 40 * np.exp(-((self.xx - cx) ** 2 + (self.yy - cy) ** 2) / 200)
        image = (22 + blob + self.rng.normal(0, 0.3, blob.shape)).astype(np.float32)
        desc.seq = self.seq
        desc.width, desc.height = WIDTH, HEIGHT
        desc.pixels = libc.malloc(image.nbytes)
        libc.memcpy(desc.pixels, image.ctypes.data, image.nbytes)
        self.seq += 1


def as_array(desc):
    n = desc.width * desc.height
    buf = (ctypes.c_float * n).from_address(desc.pixels)
    return np.frombuffer(buf, dtype=np.float32).reshape(desc.height, desc.width)


class HotspotTracker:
    def __init__(self, threshold):
        self.threshold = threshold
        self.position = None
        self.moves = 0.0

    def feed(self, image):
        mask = image > self.threshold
        if not mask.any():
            return None
        ys, xs = np.nonzero(mask)
        pos = (float(xs.mean()), float(ys.mean()))
        if self.position is not None:
            self.moves += abs(pos[0] - self.position[0]) + abs(pos[1] - self.position[1])
        self.position = pos
        return pos


def main():
    camera = Camera(seed=11)
    tracker = HotspotTracker(threshold=45.0)
    start = time.time()
    for i in range(FRAMES):
        desc = FrameDesc()
        camera.grab(desc)
        image = as_array(desc)
        pos = tracker.feed(image)
        if i % 150 == 0:
            where = f"({pos[0]:.1f}, {pos[1]:.1f})" if pos else "none"
            print(f"frame {i} hotspot {where} max {image.max():.1f}C", flush=True)
        time.sleep(0.006)
    print(f"{FRAMES} frames, path {tracker.moves:.0f} px, {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
