"""Memory that is no Python object's own: nodes for it, what backs an address, and the types that
adapters look for.

What backs an address is read from the kernel's table of mappings. Where there is none, all memory
counts as private. A private mapping of a file stays the file's, even where the program has written
to its pages.
"""

from __future__ import annotations

import bisect
import ctypes
import gc
import sys
from pathlib import Path
from typing import NamedTuple

from leakscope.model.census import FILE, SHARED
from leakscope.model.errors import ours

__all__ = [
    "FILE",
    "HOST",
    "SHARED",
    "Memory",
]


HOST = "host"


class Memory(NamedTuple):
    """The memory of a storage, a mapping or a buffer."""

    key: int
    """The address of the storage or, where there is none, of the memory."""
    nbytes: int
    device: str = HOST
    backing: str = HOST
    """Of host memory: ``host`` or :data:`SHARED`, as far as its holder can tell."""
    address: int = 0
    """Where it lies; 0 where that isn't known."""
    is_foreign: bool = True
    """Its holder's own allocator did not make it: see ``settle_extents``."""


_HEADER = object.__basicsize__


class Mappings(NamedTuple):
    """The stretches of addresses that are not private memory, in order."""

    begins: list[int]
    ends: list[int]
    backings: list[str]

    def backing_of(self, address: int) -> str:
        """Return ``host``, ``shared`` or ``file``."""
        at = bisect.bisect_right(self.ends, address)
        found = at < len(self.begins) and self.begins[at] <= address
        return self.backings[at] if found else HOST


def read_mappings() -> Mappings:
    """Return the mappings of this process at this moment."""
    mappings = Mappings([], [], [])
    try:
        lines = Path("/proc/self/maps").read_bytes().splitlines()
    except ours(OSError):
        return mappings
    for line in lines:
        addresses, _, rest = line.partition(b" ")
        backing = _backing(rest)
        if backing != HOST:
            begin, _, end = addresses.partition(b"-")
            mappings.begins.append(int(begin, 16))
            mappings.ends.append(int(end, 16))
            mappings.backings.append(backing)
    return mappings


def _backing(rest: bytes) -> str:
    """Tell from a line's end, ``rw-s 00000000 00:1b 12 /dev/shm/name``."""
    at = rest.find(b"/")
    path = rest[at:] if at >= 0 else b""
    if path and not path.startswith((b"/dev/", b"/memfd:", b"/SYSV")):
        return FILE
    return SHARED if rest[3:4] == b"s" else HOST


def mapped_memory(mapping: object) -> Memory | None:
    """Return the memory of an ``mmap``; None of one that was closed.

    Its address and size stand first in the object; they are the same from 3.10 to 3.13.
    """
    address, size = (ctypes.c_ssize_t * 2).from_address(id(mapping) + _HEADER)
    return Memory(address, size, address=address) if address and size > 0 else None


class KnownTypes(NamedTuple):
    """Types with memory that ``tp_traverse`` can't see; the native engine reads them by position.

    A field is None where the program has not imported the module.
    """

    array: type | None
    record: type | None
    """Items of structured arrays: ``numpy.void``."""
    mapping: type | None
    numbers: type | None
    """``array.array``."""
    c_data: type | None
    """What ``ctypes`` makes."""
    text_buffer: type | None
    bytes_buffer: type | None
    """``io.BytesIO`` where its traversal tells of its bytes, which its own size counts too."""
    arrow_buffer: type | None
    arrow_array: type | None
    arrow_dictionary: type | None
    arrow_chunked: type | None
    arrow_table: type | None
    arrow_batch: type | None
    arrow_extension: type | None
    """Types of data that Python code defines."""
    canvas: type | None
    """What matplotlib draws on: pixels in C++ memory, which it lends as a buffer."""


def known_types() -> KnownTypes:
    """Return the types of this moment."""
    simple = _found("_ctypes", "_SimpleCData")
    return KnownTypes(
        array=_found("numpy", "ndarray"),
        record=_found("numpy", "void"),
        mapping=_found("mmap", "mmap"),
        numbers=_found("array", "array"),
        c_data=None if simple is None else type.__dict__["__base__"].__get__(simple),
        text_buffer=_found("_io", "StringIO"),
        bytes_buffer=_found("_io", "BytesIO") if _tells_of_bytes() else None,
        arrow_buffer=_found("pyarrow.lib", "Buffer"),
        arrow_array=_found("pyarrow.lib", "Array"),
        arrow_dictionary=_found("pyarrow.lib", "DictionaryArray"),
        arrow_chunked=_found("pyarrow.lib", "ChunkedArray"),
        arrow_table=_found("pyarrow.lib", "Table"),
        arrow_batch=_found("pyarrow.lib", "RecordBatch"),
        arrow_extension=_found("pyarrow.lib", "BaseExtensionType"),
        canvas=_found("matplotlib.backends._backend_agg", "RendererAgg"),
    )


def _tells_of_bytes() -> bool:
    buffer = sys.modules["_io"].BytesIO(b"some")
    return any(type(referent) is bytes for referent in gc.get_referents(buffer))


def _found(module: str, name: str) -> type | None:
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None
