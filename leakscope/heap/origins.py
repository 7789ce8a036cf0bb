"""Where the contents of growing rows were allocated, as far as tracemalloc saw it.

A tensor's memory is no Python allocation, but its wrapper is one: the traceback of the wrapper is
the line that made the tensor.
"""

from __future__ import annotations

import ctypes
import sys
import tracemalloc
from collections import defaultdict
from typing import Any

from leakscope.heap.graph import Group
from leakscope.heap.ownership import Ownership
from leakscope.model.census import Site

_MANAGED_DICT = 1 << 4
_PRE_HEADERS = (16, 32, 0)
"""Bytes between the allocated block and the object: the collector's header, and on 3.11 two more
pointers for instances with a dict of their own."""


def origins(groups: list[Group], ownership: Ownership) -> list[Site]:
    """Return the user's lines that allocated samples of what a row holds, the heaviest first.

    Each group's bytes are divided among the lines of its samples.
    """
    found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for group in groups:
        places = [p for sample in group.samples if (p := _user_line(sample, ownership))]
        for place in places:
            found[place][0] += group.bytes // len(places)
            found[place][1] += group.count // len(places)
    sites = [Site(file=f, line=line, bytes=b, count=n) for (f, line), (b, n) in found.items()]
    return sorted(sites, key=lambda site: -site.bytes)


def _user_line(obj: object, ownership: Ownership) -> tuple[str, int] | None:
    for file, line in traceback_of(obj):
        if ownership.owns_file(file):
            return file, line
    return None


def traceback_of(obj: object) -> list[tuple[str, int]]:
    """Return file and line of the frames that allocated an object, the innermost first."""
    known = tracemalloc.get_object_traceback(obj)
    if known is not None:
        return [(frame.filename, frame.lineno) for frame in reversed(known)]
    if not _is_misread(type(obj)):
        return []
    for offset in _PRE_HEADERS:
        frames = _block_traceback(id(obj) - offset)
        if frames:
            return frames
    return []


def _is_misread(cls: type) -> bool:
    """3.11 looks for instances with a managed dict at a wrong address."""
    flags: int = type.__dict__["__flags__"].__get__(cls)
    return sys.version_info[:2] == (3, 11) and bool(flags & _MANAGED_DICT)


def _block_traceback(address: int) -> list[tuple[str, int]]:
    read: Any = ctypes.pythonapi._PyTraceMalloc_GetTraceback
    read.restype = ctypes.py_object
    read.argtypes = (ctypes.c_uint, ctypes.c_size_t)
    frames = read(0, address)
    if type(frames) is not tuple:
        return []
    return [(str(file), int(line)) for file, line, *_ in frames]
