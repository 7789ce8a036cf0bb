"""The C heap: what malloc has handed out and what it keeps though it is free.

glibc reports by ``mallinfo2`` where it has it (2.33, 2021). Before, ``mallinfo`` counted in 32 bits
and wrapped at 4 GiB, so the sums that ``malloc_info`` prints as XML are read instead. jemalloc and
tcmalloc, preloaded in its place, have calls of their own. Of mimalloc, which counts nothing exactly
in a release build, and of other C libraries there are no gauges.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable

from leakscope.model import gauge
from leakscope.probes import GuardedProbe


class MallocProbe(GuardedProbe):
    """State of the C heap; glibc locks and walks every arena's free lists, hence slow."""

    name = "malloc"
    slow = True

    def __init__(self) -> None:
        self._source = _source()

    def _measure(self) -> dict[str, int]:
        return self._source()


class _Mallinfo2(ctypes.Structure):
    _names = (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost",
    )  # fmt: skip
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


def _source() -> Callable[[], dict[str, int]]:
    try:
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mi_version"):
            return dict
        if hasattr(libc, "mallctl"):
            return _from_jemalloc(libc)
        if hasattr(libc, "MallocExtension_GetNumericProperty"):
            return _from_tcmalloc(libc)
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


def _from_jemalloc(library: ctypes.CDLL) -> Callable[[], dict[str, int]]:
    control = library.mallctl
    control.restype = ctypes.c_int
    control.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3, ctypes.c_size_t]
    epoch, value = ctypes.c_uint64(1), ctypes.c_size_t()
    length = ctypes.c_size_t()

    def read_value(name: bytes) -> int:
        length.value = ctypes.sizeof(value)
        failed = control(name, ctypes.byref(value), ctypes.byref(length), None, 0)
        if failed:
            raise OSError(failed, f"mallctl {name.decode()}")
        return value.value

    def read() -> dict[str, int]:
        control(b"epoch", None, None, ctypes.byref(epoch), ctypes.sizeof(epoch))
        allocated = read_value(b"stats.allocated")
        free = max(read_value(b"stats.resident") - allocated, 0)
        return {gauge.MALLOC_IN_USE: allocated, gauge.MALLOC_FREE: free}

    return read


def _from_tcmalloc(library: ctypes.CDLL) -> Callable[[], dict[str, int]]:
    property_of = library.MallocExtension_GetNumericProperty
    property_of.restype = ctypes.c_int
    property_of.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    value = ctypes.c_size_t()

    def read_value(name: bytes) -> int:
        if not property_of(name, ctypes.byref(value)):
            raise OSError(f"MallocExtension {name.decode()}")
        return value.value

    def read() -> dict[str, int]:
        allocated = read_value(b"generic.current_allocated_bytes")
        mapped = read_value(b"generic.heap_size") - read_value(b"tcmalloc.pageheap_unmapped_bytes")
        return {gauge.MALLOC_IN_USE: allocated, gauge.MALLOC_FREE: max(mapped - allocated, 0)}

    return read


def _gauges(*, in_use: int, free: int, mapped: int) -> dict[str, int]:
    return {
        gauge.MALLOC_IN_USE: in_use + mapped,
        gauge.MALLOC_FREE: free,
        gauge.MALLOC_MAPPED: mapped,
    }
