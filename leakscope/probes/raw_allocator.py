"""Keeps tracemalloc away from the allocator that threads use without holding the GIL.

tracemalloc also hooks ``PyMem_RawMalloc``, and its hook waits for the GIL. A thread of C++ that is
just entering Python (an autograd worker, gloo's loop) waits there with a lock of its own, on which
whoever has the GIL may wait in turn; and where ``tracemalloc.stop()`` runs meanwhile it goes on
with what that has freed, and the process dies: CPython's issues 128679 and 155725. No line of a
user's allocates by it, so a trace loses nothing without.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_RAW_DOMAIN = 0
"""``PYMEM_DOMAIN_RAW`` of CPython's ``Include/cpython/pymem.h``."""


class _Allocator(ctypes.Structure):
    """``PyMemAllocatorEx``, five pointers since Python 3.5."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


@contextmanager
def raw_allocator_kept() -> Iterator[None]:
    """Put the raw allocator that is in force now back at the end, whatever replaced it inside."""
    allocator = _Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(_RAW_DOMAIN, ctypes.byref(allocator))
    try:
        yield
    finally:
        ctypes.pythonapi.PyMem_SetAllocator(_RAW_DOMAIN, ctypes.byref(allocator))
