"""What backs an address: memory of this process's own, memory shared with others, or a file.

The kernel's table of mappings tells. Where there is none, all memory counts as private. A private
mapping of a file stays the file's, even where the program has written to its pages.
"""

from __future__ import annotations

import bisect
import ctypes
from pathlib import Path
from typing import NamedTuple

from leakscope.heap.adapters.memory import FILE, HOST, SHARED, Memory
from leakscope.model.interrupts import ours

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
