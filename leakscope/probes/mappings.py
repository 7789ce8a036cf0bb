"""Resident memory by kind of mapping and by who shares it, from ``/proc/self/smaps``.

What a mapping is for is read from its name, its address and its neighbours: the kernel names files,
the main heap and the main stack, and nothing else. For ``smaps`` the kernel visits every page to
learn who else maps it: some 10 ms in a process with torch, fifty with five thousand mappings.
Proportional memory is not summed up from here, since the kernel rounds it in each mapping.

Most of that time goes to the files of libraries, which hardly change. Between two such readings
only the process's own memory is therefore read, page by page (``mincore``), in a tenth of the time.
The kernel's sums tell how much there is of files and of shared memory. Everything is read where one
of these has changed much, for its files have names, and where the pages don't add up to what the
process has: the kernel's page of zeros and swapped pages look resident, and a sandbox may call all
pages so.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from leakscope.model import gauge
from leakscope.probes import GuardedProbe

_SMAPS = Path("/proc/self/smaps")
_MAPS = Path("/proc/self/maps")
_STATUS = Path("/proc/self/status")
_MAPPING = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+) *(.*)\n(?:[A-Z].*\n)*?"
    rb"Rss: +(\d+) kB\n(?:[A-Z].*\n)*?"
    rb"Private_Clean: +(\d+) kB\nPrivate_Dirty: +(\d+) kB\n(?:[A-Z].*\n)*?"
    rb"Anonymous: +(\d+) kB\n(?:AnonHugePages: +(\d+) kB\n|[A-Z].*\n)*",
    re.MULTILINE,
)
_RANGE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) [0-9a-f]+ \S+ \d+ *(.*)$", re.MULTILINE)
_SUMS = re.compile(rb"^Rss(Anon|File|Shmem):\s+(\d+) kB$", re.MULTILINE)
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
_KINDS = (
    ("[heap", gauge.MAPPED_HEAP),
    ("[stack", gauge.MAPPED_STACKS),
    (_SHARED, gauge.MAPPED_SHARED),
    (_DEVICES, gauge.MAPPED_DEVICES),
    ("/", gauge.MAPPED_LIBRARIES),
)
"""By how a name begins, the first that fits; all others are anonymous memory."""
_FORBIDDEN = b"---p"
_OF_KERNEL = "[v"
"""Its clock and its system calls, which are mapped into each process and belong to none."""
_TOLERANCE = 1 << 20
_TOLERANCE_SHARE = 1 / 256
"""Bytes, and part of the whole, by which the process's own pages may differ from the kernel's sum:
it adds up what processors count for themselves."""
_MUCH_OF_FILES = 8 << 20
"""Bytes that come from files or in shared memory before everything is read. Libraries' code comes
as it is used."""
_FURTHER = 4.0
"""Everything is read again when the process is so many times as old as at the last time."""
_LEAST_AGE = 1.0
"""Seconds that it is taken to be old at first."""
_MOST_UNUSED = 1 << 32
"""Bytes of address space beyond what is resident whose pages are looked at: reserved ones."""
_PAGES_AT_ONCE = 1 << 15
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
_OWN_KINDS = (
    gauge.MAPPED_HEAP,
    gauge.MAPPED_ARENAS,
    gauge.MAPPED_STACKS,
    gauge.MAPPED_LIBRARIES,
    gauge.MAPPED_ANONYMOUS,
)
"""Kinds that hold nothing but the process's own pages."""


class _KernelSums(NamedTuple):
    anonymous: int
    of_files: int
    shared: int


class _Reading(NamedTuple):
    gauges: dict[str, int]
    sums: _KernelSums
    changed_in_files: int
    """Bytes of pages of files that the process has changed: its own, and not read by pages."""
    age: float


class MappingKindsProbe(GuardedProbe):
    """What is resident in the heap, in arenas of threads, stacks, libraries, files and so on."""

    name = "kinds of mappings"
    slow = True

    def __init__(self) -> None:
        self._reported: set[str] = set()
        self._last: _Reading | None = None
        self._began = monotonic()

    def _measure(self) -> dict[str, int]:
        """Return the sum of each kind, and of the largest files mapped.

        A reading of everything also has what is shared with others. The other readings have files
        by name as they were in the last such one.
        """
        sums = _kernel_sums()
        gauges = self._own_pages(self._last, sums) if self._last and sums else None
        return self._everything(sums) if gauges is None else gauges

    def _own_pages(self, last: _Reading, sums: _KernelSums) -> dict[str, int] | None:
        """Return the kinds by the process's own pages; None where everything is to be read."""
        of_files = sums.of_files - last.sums.of_files
        in_shared = sums.shared - last.sums.shared
        is_old = monotonic() - self._began >= _FURTHER * last.age
        if is_old or max(abs(of_files), abs(in_shared)) > _MUCH_OF_FILES:
            return None
        mappings = read_own_pages(sums.anonymous)
        if mappings is None:
            return None
        kinds = Counter(dict.fromkeys(_OWN_KINDS, 0))
        for mapping, kind in classed(mappings):
            kinds[kind] += mapping.resident
            if mapping.name == _MIMALLOC:
                kinds[gauge.MAPPED_MIMALLOC] += mapping.resident
        kinds[gauge.MAPPED_LIBRARIES] += last.changed_in_files
        apart = abs(sum(kinds[kind] for kind in _OWN_KINDS) - sums.anonymous)
        if apart > _TOLERANCE + _TOLERANCE_SHARE * sums.anonymous:
            return None
        kinds[gauge.MAPPED_FILES] = max(last.gauges[gauge.MAPPED_FILES] + of_files, 0)
        kinds[gauge.MAPPED_SHARED] = max(last.gauges[gauge.MAPPED_SHARED] + in_shared, 0)
        repeated = {name: size for name, size in last.gauges.items() if name not in _SHARING}
        return repeated | dict(kinds)

    def _everything(self, sums: _KernelSums | None) -> dict[str, int]:
        changed = 0
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
                changed += mapping.anonymous
                files[mapping.name] += mapping.resident - mapping.anonymous
            else:
                kinds[kind] += mapping.resident
                if mapping.name == _MIMALLOC:
                    kinds[gauge.MAPPED_MIMALLOC] += mapping.resident
        gauges = dict(kinds) | self._named(files)
        age = max(monotonic() - self._began, _LEAST_AGE)
        self._last = _Reading(gauges, sums, changed, age) if sums else None
        return gauges

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


def read_own_pages(resident: int) -> list[Mapping] | None:
    """Return the mappings of this process, with the resident pages of those that are in no file.

    None where that can't be learned, or so much address space is reserved beyond what is
    ``resident`` that it would take long. May raise ``OSError``.
    """
    count = _page_counter()
    if count is None:
        return None
    mappings, left = [], resident + _MOST_UNUSED
    for found in _RANGE.finditer(_MAPS.read_bytes()):
        begin, end, permissions, name = found.groups()
        its = Mapping(
            int(begin, 16), int(end, 16), permissions, name.decode("utf-8", "surrogateescape"), 0, 0
        )
        is_own = not its.name.startswith(("/", *_SHARED, *_DEVICES, _OF_KERNEL))
        if is_own and permissions != _FORBIDDEN:
            left -= its.end - its.begin
            if left < 0:
                return None
            pages = count(its.begin, its.end)
            its = its._replace(resident=pages, anonymous=pages)
        mappings.append(its)
    return mappings


def _page_counter() -> Callable[[int, int], int] | None:
    """Return what tells how many bytes between two addresses are resident, if anything does."""
    try:
        mincore = ctypes.CDLL(None).mincore
    except (AttributeError, OSError):
        return None
    mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    states = ctypes.create_string_buffer(_PAGES_AT_ONCE)
    page = mmap.PAGESIZE

    def count(begin: int, end: int) -> int:
        pages = 0
        for at in range(begin, end, _PAGES_AT_ONCE * page):
            length = min(end - at, _PAGES_AT_ONCE * page)
            # It fails where the mapping is gone by now.
            if mincore(at, length, states) == 0:
                pages += states.raw[: length // page].count(1)
        return pages * page

    return count


def _kernel_sums() -> _KernelSums | None:
    """Return the sums that the kernel has at hand; None before Linux 4.5."""
    found = {name: int(size) << 10 for name, size in _SUMS.findall(_STATUS.read_bytes())}
    if len(found) < len(_KernelSums._fields):
        return None
    return _KernelSums(found[b"Anon"], found[b"File"], found[b"Shmem"])


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
    """Return what memory is for: without a name by its address and what lies right next to it."""
    for beginning, kind in _KINDS:
        if its.name.startswith(beginning):
            return kind
    if its.name:
        return gauge.MAPPED_ANONYMOUS
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
