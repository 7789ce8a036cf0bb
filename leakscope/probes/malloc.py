"""glibc's malloc: what the C heap uses and what it keeps though it is free.

``mallinfo2`` where glibc has it (2.33, 2021). Before, ``mallinfo`` counted in 32 bits and wrapped
at 4 GiB, so the sums that ``malloc_info`` prints as XML are read instead. Other allocators and
other C libraries tell nothing: no gauges. A preloaded jemalloc or tcmalloc is named in the
manifest's environment; glibc's figures then describe what little still goes through it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable

from leakscope.model import gauge
from leakscope.probes.base import GuardedProbe


class MallocProbe(GuardedProbe):
    """State of the C heap; locks and walks every arena's free lists, hence slow."""

    name = "malloc"
    slow = True

    def __init__(self) -> None:
        self._source = _source()

    def measure(self) -> dict[str, int]:
        """Return bytes in use, free but kept, and in mappings of their own."""
        return self._source()


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def _source() -> Callable[[], dict[str, int]]:
    try:
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallinfo2"):
            return _from_mallinfo2(libc)
        return _from_malloc_info(libc)
    except (OSError, AttributeError, TypeError):
        return dict  # another C library


def _from_mallinfo2(libc: ctypes.CDLL) -> Callable[[], dict[str, int]]:
    mallinfo2 = libc.mallinfo2
    mallinfo2.restype = _Mallinfo2
    mallinfo2.argtypes = []

    def read() -> dict[str, int]:
        info = mallinfo2()
        return _gauges(in_use=info.uordblks, free=info.fordblks, mapped=info.hblkhd)

    return read


_TOTALS = re.compile(rb'<total type="(fast|rest|mmap)" count="\d+" size="(\d+)"/>')
_SYSTEM = re.compile(rb'<system type="current" size="(\d+)"/>')


def _from_malloc_info(libc: ctypes.CDLL) -> Callable[[], dict[str, int]]:
    libc.open_memstream.restype = ctypes.c_void_p
    libc.open_memstream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.fclose.argtypes = [ctypes.c_void_p]
    libc.free.argtypes = [ctypes.c_void_p]

    def read() -> dict[str, int]:
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        stream = libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
        if not stream:
            return {}
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        xml = ctypes.string_at(text, size.value)
        libc.free(text)
        return _from_xml(xml)

    return read


def _from_xml(xml: bytes) -> dict[str, int]:
    """The last totals in the text are the sums over all arenas."""
    sizes = {kind: int(size) for kind, size in _TOTALS.findall(xml)}
    system = int(_SYSTEM.findall(xml)[-1])
    free = sizes[b"fast"] + sizes[b"rest"]
    return _gauges(in_use=system - free, free=free, mapped=sizes.get(b"mmap", 0))


def _gauges(*, in_use: int, free: int, mapped: int) -> dict[str, int]:
    return {
        gauge.MALLOC_IN_USE: in_use + mapped,
        gauge.MALLOC_FREE: free,
        gauge.MALLOC_MAPPED: mapped,
    }
