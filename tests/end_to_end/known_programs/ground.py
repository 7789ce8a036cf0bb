"""On what ground a program runs: the collector, and the arenas and thresholds of glibc's malloc."""

import ctypes
import gc
import threading

from rounds import rounds, run

BLOCK, BLOCKS = 60_000, 1200
M_MMAP_THRESHOLD = -3


class Node:
    def __init__(self):
        self.itself = self
        self.payload = bytearray(40_000)


def python_collector_off(leaks):
    if leaks:
        gc.disable()
    for _ in rounds():
        for _ in range(20):
            Node()
        if not leaks:
            gc.collect()


def python_collector_frozen(leaks):
    for _ in rounds():
        for _ in range(20):
            Node()
        if leaks:
            gc.freeze()
        else:
            gc.collect()


def _libc(gives_back):
    libc = ctypes.CDLL("libc.so.6")
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.realloc.restype = ctypes.c_void_p
    libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    if gives_back:
        libc.mallopt(M_MMAP_THRESHOLD, 32_768)  # what MALLOC_MMAP_THRESHOLD_ says at the start
    return libc


def _read_frames(libc, blocks):
    """Leaves a small part of some blocks, which keeps what was freed below it."""
    frames = [libc.malloc(BLOCK) for _ in range(blocks)]
    for frame in frames:
        ctypes.memset(frame, 1, BLOCK)
    for i, frame in enumerate(frames):
        libc.realloc(frame, 64 if i % 100 == 0 else 0)


def glibc_thresholds(leaks):
    libc = _libc(gives_back=not leaks)
    for i in rounds(30):
        _read_frames(libc, BLOCKS + 40 * i)


def glibc_arenas(leaks):
    libc = _libc(gives_back=not leaks)
    started, over = threading.Barrier(5), threading.Barrier(5)

    def work():
        for i in range(30):
            started.wait()
            _read_frames(libc, BLOCKS // 4 + 10 * i)
            over.wait()

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    for _ in rounds(30):
        started.wait()
        over.wait()


if __name__ == "__main__":
    run(globals())
