"""Compresses rotating service logs in a background thread, straight on zlib's C API."""

import ctypes
import queue
import random
import threading
import time

z = ctypes.CDLL("libz.so.1")
Z_OK, Z_STREAM_END, Z_FINISH = 0, 1, 4


class ZStream(ctypes.Structure):
    _fields_ = [
        ("next_in", ctypes.c_void_p),
        ("avail_in", ctypes.c_uint),
        ("total_in", ctypes.c_ulong),
        ("next_out", ctypes.c_void_p),
        ("avail_out", ctypes.c_uint),
        ("total_out", ctypes.c_ulong),
        ("msg", ctypes.c_char_p),
        ("state", ctypes.c_void_p),
        ("zalloc", ctypes.c_void_p),
        ("zfree", ctypes.c_void_p),
        ("opaque", ctypes.c_void_p),
        ("data_type", ctypes.c_int),
        ("adler", ctypes.c_ulong),
        ("reserved", ctypes.c_ulong),
    ]


z.zlibVersion.restype = ctypes.c_char_p
z.deflateInit_.argtypes = [ctypes.POINTER(ZStream), ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
z.deflate.argtypes = [ctypes.POINTER(ZStream), ctypes.c_int]


def compress(data: bytes, level=6) -> bytes:
    strm = ZStream()
    rc = z.deflateInit_(ctypes.byref(strm), level, z.zlibVersion(), ctypes.sizeof(ZStream))
    if rc != Z_OK:
        raise RuntimeError(f"deflateInit failed: {rc}")
    src = ctypes.create_string_buffer(data, len(data))
    dst = ctypes.create_string_buffer(len(data) + 1024)
    strm.next_in = ctypes.addressof(src)
    strm.avail_in = len(data)
    strm.next_out = ctypes.addressof(dst)
    strm.avail_out = len(dst)
    rc = z.deflate(ctypes.byref(strm), Z_FINISH)
    if rc != Z_STREAM_END:
        raise RuntimeError(f"deflate failed: {rc}")
    return dst.raw[: strm.total_out]


class Archiver(threading.Thread):
    def __init__(self):
        super().__init__(name="archiver", daemon=True)
        self.inbox = queue.Queue(maxsize=4)
        self.raw = 0
        self.packed = 0
        self.files = 0

    def run(self):
        while True:
            chunk = self.inbox.get()
            if chunk is None:
                return
            blob = compress(chunk)
            self.raw += len(chunk)
            self.packed += len(blob)
            self.files += 1


def log_lines(rng, n):
    levels = ["INFO", "INFO", "INFO", "WARN", "DEBUG"]
    for i in range(n):
        yield (
            f"{i:08d} {rng.choice(levels)} svc-{rng.randrange(12)} request "
            f"{rng.getrandbits(40):010x} took {rng.random() * 90:.2f} ms\n"
        )


def main():
    rng = random.Random(5)
    archiver = Archiver()
    archiver.start()
    start = time.time()
    for n in range(360):
        chunk = "".join(log_lines(rng, 900)).encode()
        archiver.inbox.put(chunk)
        time.sleep(0.03)
        if n % 30 == 0 and archiver.raw:
            print(
                f"rotated {n}, archived {archiver.files}, "
                f"ratio {archiver.packed / archiver.raw:.3f}",
                flush=True,
            )
    archiver.inbox.put(None)
    archiver.join()
    print(f"{archiver.files} files, {archiver.packed} bytes, {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
