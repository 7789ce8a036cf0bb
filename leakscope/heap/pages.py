"""How much of a structure that a forked process inherited it has copied for itself by now.

A page stays shared with the parent until somebody writes to it, and Python writes to every object
that it merely looks at: its reference count lies within. Linux tells of each page whether this
process alone maps it (``/proc/self/pagemap``, bit 56; Documentation/admin-guide/mm/pagemap.rst), to
anybody, for his own process. Reading it touches none of the objects.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Sequence

from leakscope.model.interrupts import ours

_ENTRY_BYTES = 8
_PRESENT = 1 << 63
_EXCLUSIVE = 1 << 56
_SAMPLES = 512
_FEWEST = 64
"""Fewer pages say little about a structure."""


def copied_share(container: object) -> float | None:
    """Return which part of the objects in a container, 0 to 1, lies in pages of this process alone.

    In a process that was not forked, or whose parent is gone, that is all of them. None where the
    platform doesn't tell, or the container holds too few.
    """
    return exclusive_share(sampled(container))


def sampled(container: object) -> Sequence[int]:
    """Return where some of the objects in a container lie; nothing where it holds too few.

    What lies there can be asked again later (:func:`exclusive_share`), whatever became of them.
    """
    try:
        from leakscope.heap._native import referent_addresses
    except ImportError:
        return ()
    addresses = array("Q", referent_addresses(container, _SAMPLES))
    return addresses if len(addresses) >= _FEWEST else ()


def exclusive_share(addresses: Sequence[int]) -> float | None:
    """Return which part of these places, 0 to 1, lies in pages that no other process maps.

    None where there are none, or the platform doesn't tell.
    """
    if not addresses:
        return None
    try:
        pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except ours(OSError):
        return None
    try:
        entries = [_entry(pages, address // mmap.PAGESIZE) for address in addresses]
    except ours(OSError):
        return None
    finally:
        os.close(pages)
    present = [entry for entry in entries if entry & _PRESENT]
    if not present:
        return None
    return sum(bool(entry & _EXCLUSIVE) for entry in present) / len(present)


def _entry(pages: int, page: int) -> int:
    read = os.pread(pages, _ENTRY_BYTES, page * _ENTRY_BYTES)
    return array("Q", read)[0] if len(read) == _ENTRY_BYTES else 0
