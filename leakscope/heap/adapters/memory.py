"""Memory that is no Python object's own: a node of its own, shared by all that hold it."""

from __future__ import annotations

from typing import NamedTuple

from leakscope.model.census import FILE, SHARED

__all__ = ["FILE", "HOST", "SHARED", "Memory"]

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
    """Its holder's own allocator did not make it: see ``extents.py``."""
