"""Resident memory by kind of mapping and by who shares it, from ``/proc/self/smaps``.

What a mapping is for is read from its name, its address and its neighbours: the kernel names files,
the main heap and the main stack, and nothing else. The kernel visits every page table to answer,
which takes half as long again as its sums alone: some milliseconds in a process with torch, fifty
with five thousand mappings. Proportional memory is not summed up from here, since the kernel rounds
it in each mapping.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from leakscope.model import gauge
from leakscope.probes import GuardedProbe

_SMAPS = Path("/proc/self/smaps")
_MAPPING = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+) *(.*)\n(?:[A-Z].*\n)*?"
    rb"Rss: +(\d+) kB\n(?:[A-Z].*\n)*?"
    rb"Private_Clean: +(\d+) kB\nPrivate_Dirty: +(\d+) kB\n(?:[A-Z].*\n)*?"
    rb"Anonymous: +(\d+) kB\n(?:AnonHugePages: +(\d+) kB\n|[A-Z].*\n)*",
    re.MULTILINE,
)
_CHUNK = 1 << 15
"""Bytes read at once. In one piece the text of many mappings would be a block so large that glibc
raises the size from which on blocks of the program's get mappings of their own."""
_ARENA = 64 << 20
"""An arena of glibc's threads lies in stretches of so many bytes, each at a multiple of that
(``HEAP_MAX_SIZE`` in ``malloc/arena.c``)."""
_LARGEST_GUARD = 1 << 16
"""Below a thread's stack lie pages that nobody may touch: one, or one of the largest kind."""
_LARGEST_VARIABLES = 4 << 20
"""Variables of a library that have no value in its file lie right behind it. What is larger there
is mostly other memory that the kernel has joined to them."""
_SHARED = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "[anon_shmem")  # noqa: S108
_DEVICES = ("/dev/", "anon_inode:")
_MIMALLOC = "[anon:mimalloc]"
"""Recent versions of mimalloc name their memory so, where the kernel keeps names (Linux 5.17)."""
_FORBIDDEN = b"---p"
_SHARING = (gauge.PRIVATE, gauge.PRIVATE_DIRTY, gauge.SHARED, gauge.HUGE_PAGES)
LEAST_FILE_BYTES = 16 << 20
"""Files with fewer resident pages appear in the sum only."""
MOST_FILES = 4
MOST_NAMES = 16
"""Files that appear by name in a whole run: a program may open any number."""


class Mapping(NamedTuple):
    """One mapping of the address space."""

    begin: int
    end: int
    permissions: bytes
    name: str
    """The file's, the kernel's own for the heap and the main stack; empty for other memory."""
    resident: int
    anonymous: int
    """The part of it that is the process's own: in no file, or a changed copy of a file's page."""
    private: int = 0
    """The part of it that no other process maps."""
    written: int = 0
    """The part of ``private`` that was written to."""
    in_huge_pages: int = 0


_NOWHERE = Mapping(0, 0, b"", "", 0, 0)


class MappingKindsProbe(GuardedProbe):
    """What is resident in the heap, in arenas of threads, stacks, libraries, files and so on."""

    name = "kinds of mappings"
    slow = True

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def measure(self) -> dict[str, int]:
        """Return the sum of each kind, of what is shared, and of the largest files mapped."""
        kinds: Counter[str] = Counter(dict.fromkeys((*gauge.MAPPING_KINDS, *_SHARING), 0))
        files: Counter[str] = Counter()
        for mapping, kind in classed(read_mappings()):
            kinds[gauge.PRIVATE] += mapping.private
            kinds[gauge.PRIVATE_DIRTY] += mapping.written
            kinds[gauge.SHARED] += mapping.resident - mapping.private
            kinds[gauge.HUGE_PAGES] += mapping.in_huge_pages
            if kind == gauge.MAPPED_LIBRARIES and mapping.name:
                kinds[gauge.MAPPED_FILES] += mapping.resident - mapping.anonymous
                kinds[kind] += mapping.anonymous
                files[mapping.name] += mapping.resident - mapping.anonymous
            else:
                kinds[kind] += mapping.resident
                if mapping.name == _MIMALLOC:
                    kinds[gauge.MAPPED_MIMALLOC] += mapping.resident
        return dict(kinds) | self._named(files)

    def _named(self, files: Counter[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for path, size in files.most_common(MOST_FILES):
            name = gauge.mapped_file(Path(path).name)
            if size >= LEAST_FILE_BYTES and (
                name in self._reported or len(self._reported) < MOST_NAMES
            ):
                self._reported.add(name)
                found[name] = found.get(name, 0) + size
        return found


def read_mappings(path: Path = _SMAPS) -> Iterator[Mapping]:
    """Yield the mappings of a process in the order of their addresses; may raise ``OSError``."""
    left = b""
    with path.open("rb", buffering=0) as table:
        while chunk := table.read(_CHUNK):
            text = left + chunk
            # The last one may be cut off anywhere: it waits for what follows.
            end = max(text.rfind(b"\nVmFlags"), 0)
            end = text.find(b"\n", end + 1) + 1 if end else 0
            yield from _parsed(text[:end])
            left = text[end:]
    yield from _parsed(left)


def _parsed(text: bytes) -> Iterator[Mapping]:
    for found in _MAPPING.finditer(text):
        begin, end, permissions, _, name, *sizes = found.groups(default=b"0")
        resident, clean, dirty, anonymous, huge = (int(size) << 10 for size in sizes)
        yield Mapping(
            int(begin, 16),
            int(end, 16),
            permissions,
            name.decode("utf-8", "surrogateescape"),
            resident,
            anonymous,
            clean + dirty,
            dirty,
            huge,
        )


def classed(mappings: Iterable[Mapping]) -> Iterator[tuple[Mapping, str]]:
    """Yield each mapping with the gauge of its kind."""
    before, its, of_before = _NOWHERE, _NOWHERE, ""
    for after in (*mappings, _NOWHERE):
        if its is not _NOWHERE:
            kind = _kind(its, before, after, of_before)
            yield its, kind
            of_before = kind
        before, its = its, after


def _kind(its: Mapping, before: Mapping, after: Mapping, of_before: str) -> str:
    name = its.name
    if name.startswith("[heap"):
        return gauge.MAPPED_HEAP
    if name.startswith("[stack"):
        return gauge.MAPPED_STACKS
    if name.startswith(_SHARED):
        return gauge.MAPPED_SHARED
    if name.startswith(_DEVICES):
        return gauge.MAPPED_DEVICES
    if name.startswith("/"):
        return gauge.MAPPED_LIBRARIES
    if name:
        return gauge.MAPPED_ANONYMOUS
    return _kind_of_nameless(its, before, after, of_before)


def _kind_of_nameless(its: Mapping, before: Mapping, after: Mapping, of_before: str) -> str:
    """Return what memory without a name is, by its address and what lies right next to it."""
    follows = before.end == its.begin
    if _is_arena(its, after):
        return gauge.MAPPED_ARENAS
    if its.permissions == _FORBIDDEN and follows and of_before == gauge.MAPPED_ARENAS:
        return gauge.MAPPED_ARENAS
    is_guarded = (
        follows
        and before.permissions == _FORBIDDEN
        and not before.name
        and before.end - before.begin <= _LARGEST_GUARD
        and of_before != gauge.MAPPED_ARENAS
    )
    if is_guarded:
        return gauge.MAPPED_STACKS
    is_of_library = follows and before.name.startswith("/") and of_before == gauge.MAPPED_LIBRARIES
    if is_of_library and its.end - its.begin <= _LARGEST_VARIABLES:
        return gauge.MAPPED_LIBRARIES
    return gauge.MAPPED_ANONYMOUS


def _is_arena(its: Mapping, after: Mapping) -> bool:
    """Return whether a thread's arena begins there: in use up to somewhere, then reserved."""
    if its.begin % _ARENA or not its.permissions.startswith(b"rw") or sys.maxsize < 1 << 32:
        return False
    end = its.begin + _ARENA
    is_reserved = after.begin == its.end and after.permissions == _FORBIDDEN
    # What is reserved of one arena and the guard of a stack may be one mapping.
    return its.end == end or (its.end < end and is_reserved and after.end >= end)
