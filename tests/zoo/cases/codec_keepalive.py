"""Sorts and packs sensor frames through the C library, by way of ctypes."""

import ctypes
import ctypes.util
import time
import zlib

import numpy as np

FRAMES, PER_SECOND, POINTS = 560, 40, 1600
_libc = ctypes.CDLL(ctypes.util.find_library("c"))
_COMPARE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int64)
)
_libc.qsort.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, _COMPARE]
_libc.qsort.restype = None


class Frame(ctypes.Structure):
    _fields_ = [
        ("number", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("points", ctypes.POINTER(ctypes.c_int64)),
        ("payload", ctypes.POINTER(ctypes.c_char)),
    ]


class Codec:
    """Packs frames; what C holds pointers to must live as long as C may use it."""

    def __init__(self, groups=64):
        self.groups = groups
        self._keepalive = []
        self.frame = Frame()
        self.comparisons = 0

    def _compare(self, a, b):
        self.comparisons += 1
        return (a[0] > b[0]) - (a[0] < b[0])

    def _keep(self, thing):
        self._keepalive.append(thing)
        return thing

    def pack(self, number, points):
        """Return a frame as bytes: points by their cell, the number of each cell first."""
        codes = (points[:, 0] * 65536 + points[:, 1]).astype(np.int64)
        some = np.ascontiguousarray(codes[:: len(codes) // self.groups][: self.groups])
        heads = self._keep((ctypes.c_int64 * len(some)).from_buffer_copy(some))
        _libc.qsort(heads, len(some), 8, _COMPARE(self._compare))
        borders = np.frombuffer(heads, np.int64)
        cells = np.searchsorted(borders, codes)
        order = np.argsort(cells, kind="stable")
        ordered = np.ascontiguousarray(codes[order])
        payload = self._keep(ctypes.create_string_buffer(ordered.tobytes(), ordered.nbytes))
        self.frame.number, self.frame.count = number, len(ordered)
        self.frame.points = ctypes.cast(heads, ctypes.POINTER(ctypes.c_int64))
        self.frame.payload = ctypes.cast(payload, ctypes.POINTER(ctypes.c_char))
        return self._emit()

    def _emit(self):
        """Delta-code what the frame points at."""
        raw = ctypes.string_at(self.frame.payload, 8 * self.frame.count)
        values = np.frombuffer(raw, np.int64)
        deltas = np.diff(values, prepend=values[:1])
        return zlib.compress(deltas.tobytes(), 6)


class Scanner:
    """A turning range finder in a room with pillars."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.pillars = self.rng.uniform(5000, 60000, (12, 2))

    def frame(self):
        pillar = self.pillars[self.rng.integers(len(self.pillars), size=POINTS)]
        spread = self.rng.standard_normal((POINTS, 2)) * 400
        self.pillars += self.rng.standard_normal(self.pillars.shape) * 20
        return np.clip(pillar + spread, 0, 65535).astype(np.int64)


def main():
    codec, scanner, packed = Codec(), Scanner(0), 0
    begun = time.monotonic()
    for number in range(FRAMES):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        grid = [scanner.frame() for _ in range(6)]
        packed += sum(len(codec.pack(number, points)) for points in grid)
        if number % 80 == 79:
            print(
                f"{number + 1} frames, {packed >> 10} KiB, {codec.comparisons} compared", flush=True
            )


if __name__ == "__main__":
    main()
