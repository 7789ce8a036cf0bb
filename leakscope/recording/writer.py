"""The writer: appends records to the journal of one process, one system call each.

No buffer, no thread, no lock and nothing at exit: what was acknowledged is in the kernel's hands
and survives whatever becomes of the process. A writer costs its program data at worst, never more.

A journal that has reached its size is thinned: it is copied, a few milliseconds with each further
record, without every second reading of each kind of boundary, and the copy takes its place.
"""

from __future__ import annotations

import errno
import io
import os
from array import array
from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from leakscope.model.errors import ours
from leakscope.model.record import (
    AllocationRecord,
    BlockListRecord,
    BoundaryRecord,
    CensusRecord,
    CleaningCallsRecord,
    CompilationRecord,
    CompiledCodeRecord,
    DeviceSnapshotRecord,
    EndRecord,
    HeaderRecord,
    NativeAllocationsRecord,
    NativeSite,
    NoteRecord,
    OutOfMemoryRecord,
    OverheadRecord,
    Record,
    RegistryEntriesRecord,
    SourceRecord,
)
from leakscope.recording.format import (
    JournalFrame,
    decode_record,
    encode_record,
    read_frames,
    to_frame,
)

JOURNAL_SUFFIX = ".journal"
MOST_BYTES = 500 << 20

_KEPT, _BOUNDARY, _OF_BOUNDARY, _SERIES, _NATIVE, _REPLACED = range(6)
"""What may become of a record: it stays; a reading; what belongs to one; one of a series, as are
samples of native memory, of which the first has the stacks; or only the latest counts."""
_FATES: dict[type, int] = {
    BoundaryRecord: _BOUNDARY,
    CensusRecord: _OF_BOUNDARY,
    DeviceSnapshotRecord: _OF_BOUNDARY,
    NativeAllocationsRecord: _NATIVE,
    BlockListRecord: _SERIES,
    CleaningCallsRecord: _SERIES,
    RegistryEntriesRecord: _SERIES,
    OverheadRecord: _REPLACED,
    CompiledCodeRecord: _REPLACED,
}
_OPTIONAL = (
    SourceRecord,
    AllocationRecord,
    NativeAllocationsRecord,
    CompilationRecord,
    CompiledCodeRecord,
    DeviceSnapshotRecord,
    BlockListRecord,
)
"""Given up first when room is short: a verdict is possible without them."""
_CLOSING = (EndRecord, OverheadRecord, NoteRecord, OutOfMemoryRecord)
"""Small or few, and written beyond the cap: else a full recording would look like a killed run."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RecordingWriter:
    """Writes the journal of this process into a run directory.

    A child made by ``fork`` inherits the object but writes nothing through it. Neither the
    constructor nor any method raises; :attr:`failed` says why nothing is written any more.
    """

    failed: str | None
    """Why writing stopped, as a sentence; None while it goes on."""
    bytes_written: int

    def __init__(self, directory: Path, header: HeaderRecord, *, max_bytes: int = MOST_BYTES):
        self.failed = None
        self.bytes_written = 0
        self.path = directory / f"{_stem(header)}{JOURNAL_SUFFIX}"
        self._max_bytes = max_bytes
        self._thinned = False
        """Whether optional payloads are left out."""
        self._has_noted_thinning = False
        self._full = False
        self._index = _Index()
        self._thinning: _Thinning | None = None
        self._has_noted_end = False
        self._pid = os.getpid()
        self._fd = -1
        self._identity = (0, 0)
        self._open()
        self.write(header, sync=True)

    def write(self, record: Record, *, sync: bool = False) -> bool:
        """Append a record and return whether it is in the journal.

        Args:
            record: What to write. Optional payloads (sources, allocations, device snapshots) are
                left out once the disk is full.
            sync: Also wait for the disk, so that it survives the machine: some milliseconds.

        """
        if self._fd < 0 or os.getpid() != self._pid:
            return False
        if self._full and not self._has_noted_end and isinstance(record, EndRecord):
            record = msgspec.structs.replace(record, is_cut_off=True)
        try:
            data = to_frame(encode_record(record))
        except ours(Exception):
            return False
        if not self._admits(record, len(data)):
            return False
        offset = self.bytes_written
        if not self._append(data, optional=isinstance(record, _OPTIONAL)):
            return False
        self._index.add(record, offset, len(data))
        self._go_on_thinning()
        return self._synced(sync)

    def move(self, directory: Path, header: HeaderRecord) -> bool:
        """Go on in another directory as what the header says; return whether that could be done."""
        target = unused_path(directory / f"{_stem(header)}{JOURNAL_SUFFIX}")
        if self._fd < 0 or os.getpid() != self._pid:
            return False
        self._leave_thinning()
        try:
            self.path.rename(target)
        except ours(OSError):
            return False
        self.path = target
        return self.write(header, sync=True)

    def close(self) -> None:
        """Close the journal; afterwards nothing is written."""
        self._leave_thinning()
        if self._fd >= 0 and os.getpid() == self._pid and self._size_while_ours() is not None:
            os.close(self._fd)
        self._fd = -1

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            self._fd = self._make(flags)
            status = os.fstat(self._fd)
            self._identity = (status.st_dev, status.st_ino)
        except ours(OSError) as fault:
            self._give_up(f"The recording {self.path} can't be written: {fault.strerror}.")

    def _make(self, flags: int) -> int:
        """Make the journal under a name that nobody has.

        Where machines share the directory one may look free that another has just taken.
        """
        self.path = unused_path(self.path)
        try:
            return os.open(self.path, flags, 0o644)
        except ours(FileExistsError):
            own = f"{self.path.stem}-{os.urandom(6).hex()}{JOURNAL_SUFFIX}"
            self.path = self.path.with_name(own)
            return os.open(self.path, flags, 0o644)

    def _admits(self, record: Record, size: int) -> bool:
        if isinstance(record, _CLOSING):
            return True
        if self.bytes_written + size > self._max_bytes:
            self._begin_thinning()
        if isinstance(record, _OPTIONAL):
            return not (self._thinned or self._full)
        return not self._full

    def _begin_thinning(self) -> None:
        if self._thinning is not None or self._full:
            return
        dropped = self._index.superfluous(_THINNED_TO * self._max_bytes)
        if dropped is not None:
            self._thinning = _Thinning.begun(self.path, self._index, dropped)
        if self._thinning is None and self.bytes_written > _OVERDRAFT * self._max_bytes:
            cap = f"The recording reached its cap of {self._max_bytes} bytes"
            self._stop("recording-full", f"{cap}; what came afterwards was not recorded.")

    def _go_on_thinning(self) -> None:
        thinning = self._thinning
        if thinning is None:
            return
        try:
            if not thinning.go_on():
                return
            thinning.path.replace(self.path)
        except ours(Exception):
            self._leave_thinning()
            return
        self._thinning = None
        old, self._fd, self._index = self._fd, thinning.fd, thinning.index
        os.close(old)
        self._identity, self.bytes_written = thinning.identity, thinning.size
        if not self._has_noted_thinning:
            self._has_noted_thinning = True
            size = f"{self._max_bytes / (1 << 20):,.4g} MiB"
            message = f"The recording reached {size}, and readings were left out, evenly over time."
            self.write(NoteRecord(slug="recording-thinned", message=message))

    def _leave_thinning(self) -> None:
        if self._thinning is not None:
            self._thinning.leave()
            self._thinning = None

    def _append(self, data: bytes, *, optional: bool) -> bool:
        size = self._size_while_ours()
        if size is None:
            self._fd = -1  # not closed: it is somebody else's by now
            self.failed = f"The recording {self.path} was closed or removed by somebody else."
            return False
        remaining = memoryview(data)
        try:
            while remaining:
                remaining = remaining[os.write(self._fd, remaining) :]
        except ours(OSError) as fault:
            if len(remaining) < len(data):
                self._cut_back(size)
            self._refused(fault, optional=optional)
            return False
        self.bytes_written += len(data)
        return True

    def _size_while_ours(self) -> int | None:
        """Return the journal's size; None if the descriptor is no longer its own.

        A program may close all descriptors, and have their numbers given to files of its own.
        """
        try:
            status = os.fstat(self._fd)
        except ours(OSError):
            return None
        is_ours = (status.st_dev, status.st_ino) == self._identity and status.st_nlink > 0
        return status.st_size if is_ours else None

    def _cut_back(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except ours(OSError):
            pass  # the reader skips a torn record

    def _refused(self, fault: OSError, *, optional: bool) -> None:
        """Without room the large goes first; what is small may still find some at the end."""
        if fault.errno not in _NO_SPACE:
            self._give_up(f"The recording stopped: {fault.strerror} ({self.path}).")
        elif not optional:
            self._stop("recording-stopped", f"The recording stopped: {fault.strerror}.")
        elif not self._thinned:
            self._thinned = True
            message = (
                "Sources, allocation windows and device snapshots are left out: the disk is full."
            )
            self.write(NoteRecord(slug="recording-thinned", message=message))

    def _synced(self, wanted: bool) -> bool:
        if wanted:
            try:
                os.fsync(self._fd)
            except ours(OSError) as fault:
                if fault.errno not in (errno.EINVAL, errno.ENOTSUP):  # no file that can be synced
                    self._give_up(f"The recording stopped: {fault.strerror} ({self.path}).")
        return True

    def _stop(self, slug: str, reason: str) -> None:
        """Write closing records alone from now on, and say so while there may be room for it."""
        if not self._full:
            self._full = True
            self.failed = reason
            self._has_noted_end = self.write(NoteRecord(slug=slug, message=reason))

    def _give_up(self, reason: str) -> None:
        self.failed = reason
        self.close()


_THINNED_TO = 0.6
"""Part of its cap to which a journal is thinned."""
_OVERDRAFT = 1.25
"""Times its cap that a journal may have where it can't be thinned."""
_AT_ENDS = 8
"""So many of the latest readings of each kind are kept, as far as there are four times as many,
and the first."""
_PIECE_BYTES = 4 << 20
_PIECE_RECORDS = 500
"""So much is copied with each further record: some milliseconds."""
_MOST_GROUPS = 4096


class _Index:
    """Where the records of a journal lie, and which belong together: 32 bytes for each."""

    def __init__(self) -> None:
        self.offset, self.length = array("q"), array("q")
        self.what, self.group = array("b"), array("H")
        self.boundary, self.time = array("q"), array("d")
        self._columns: tuple[array[Any], ...] = (
            self.offset, self.length, self.what, self.group, self.boundary, self.time,
        )  # fmt: skip
        self._groups: dict[Hashable, int] = {}
        self._scope: tuple[int, str] = (-1, "")

    def __len__(self) -> int:
        return len(self.offset)

    def add(self, record: Record, offset: int, length: int) -> None:
        """Take note of a record that was written."""
        what, boundary, time = _FATES.get(type(record), _KEPT), -1, 0.0
        key = "" if what in (_KEPT, _OF_BOUNDARY) else type(record).__name__
        if isinstance(record, BoundaryRecord):
            at = record.boundary
            scope = self._scope[1] if self._scope[0] == at.index else ""
            key = f"{at.kind.value} {at.phase} {at.label} {scope}"
            boundary, time = at.index, at.time_s
        elif isinstance(record, CensusRecord | DeviceSnapshotRecord):
            boundary = record.boundary
            if isinstance(record, CensusRecord):
                self._scope = boundary, record.census.scope.value
        group = _MOST_GROUPS
        if key in self._groups or len(self._groups) < _MOST_GROUPS:
            group = self._groups.setdefault(key, len(self._groups))
        self._append(offset, length, what, group, boundary, time)

    def copy_entry(self, other: _Index, place: int, offset: int, length: int) -> None:
        """Take over the entry of another index for a record that lies elsewhere here."""
        self._append(offset, length, *(column[place] for column in other._columns[2:]))

    def successor(self) -> _Index:
        """Return an empty index with the same groups, to be filled while this one is in use."""
        index = _Index()
        index._groups, index._scope = self._groups, self._scope
        return index

    def superfluous(self, target: float) -> bytearray | None:
        """Return which records may go, 1 for each, so that the others take no more than a target.

        None where too little could go.
        """
        dropped = bytearray(len(self))
        groups: dict[int, list[int]] = defaultdict(list)
        for place, what in enumerate(self.what):
            if what in (_BOUNDARY, _SERIES, _NATIVE, _REPLACED):
                groups[self.group[place]].append(place)
        for places in groups.values():
            if self.what[places[0]] == _REPLACED:
                _mark(dropped, places[:-1])
        whole, left, tried = sum(self.length), float("inf"), 0
        while left > target and tried < _MOST_HALVINGS:
            tried += 1
            for places in groups.values():
                if self.what[places[0]] != _REPLACED:
                    self._halve(places, dropped)
            self._drop_with_boundaries(dropped)
            left = sum(n for n, gone in zip(self.length, dropped, strict=True) if not gone)
        return dropped if left < whole - (whole - target) / 2 else None

    def _halve(self, places: list[int], dropped: bytearray) -> None:
        """Drop half of what is left of a group, evenly over time."""
        left = [place for place in places if not dropped[place]]
        inner = left[1 : len(left) - max(1, min(_AT_ENDS, len(left) // 4))]
        if len(inner) < 2:
            return
        if self.what[left[0]] != _BOUNDARY:
            _mark(dropped, inner[::2])
            return
        times = [self.time[place] for place in inner]
        kept = {inner[n] for n in _evenly(times, len(inner) // 2)}
        _mark(dropped, [place for place in inner if place not in kept])

    def _drop_with_boundaries(self, dropped: bytearray) -> None:
        gone = {
            self.boundary[place]
            for place, what in enumerate(self.what)
            if what == _BOUNDARY and dropped[place]
        }
        for place, what in enumerate(self.what):
            if what == _OF_BOUNDARY and self.boundary[place] in gone:
                dropped[place] = 1

    def _append(self, *entry: float) -> None:
        for column, value in zip(self._columns, entry, strict=True):
            column.append(value)


_MOST_HALVINGS = 12


def _mark(dropped: bytearray, places: Sequence[int]) -> None:
    for place in places:
        dropped[place] = 1


def _evenly(times: Sequence[float], count: int) -> set[int]:
    """Return so many places of times in order, as evenly spaced as they allow."""
    chosen: set[int] = set()
    begin, span, at = times[0], times[-1] - times[0], 0
    for number in range(count):
        wanted = begin + span * number / max(1, count - 1)
        latest = len(times) - (count - number)
        while at < latest and times[at] < wanted:
            at += 1
        chosen.add(at)
        at += 1
    return chosen


class _Thinning:
    """A copy of a journal in the making, without the records that are dropped."""

    def __init__(self, path: Path, fd: int, source: int, index: _Index, dropped: bytearray):
        self.path, self.fd, self.size = path, fd, 0
        status = os.fstat(fd)
        self.identity = status.st_dev, status.st_ino
        self.index = index.successor()
        self._source, self._old, self._dropped = source, index, dropped
        self._next = 0
        self._events: dict[str, int] = {}
        self._stacks: dict[Hashable, list[str]] = {}

    @classmethod
    def begun(cls, journal: Path, index: _Index, dropped: bytearray) -> _Thinning | None:
        """Begin a copy alongside a journal; None where no file can be made."""
        path = journal.with_name(f".{journal.name}.{os.getpid()}.tmp")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
        try:
            readable = os.open(journal, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except ours(OSError):
            return None
        try:
            return cls(path, os.open(path, flags, 0o644), readable, index, dropped)
        except ours(OSError):
            os.close(readable)
            return None

    def go_on(self) -> bool:
        """Copy some more; return whether the copy has all that was written.

        Raises:
            OSError: it can't be read or written.

        """
        pieces: list[bytes] = []
        read, first = 0, self._next
        while self._next < len(self._old) and read < _PIECE_BYTES:
            if self._next - first >= _PIECE_RECORDS:
                break
            data = self._copied(self._next)
            read += self._old.length[self._next]
            if data:
                self.index.copy_entry(self._old, self._next, self.size, len(data))
                self.size += len(data)
                pieces.append(data)
            self._next += 1
        remaining = memoryview(b"".join(pieces))
        if not self._is_ours():
            raise OSError(errno.EBADF, "closed by somebody else")
        while remaining:
            remaining = remaining[os.write(self.fd, remaining) :]
        is_over = self._next == len(self._old)
        if is_over:
            self._close_source()
        return is_over

    def leave(self) -> None:
        """Give the copy up."""
        try:
            self._close_source()
            if self._is_ours():
                os.close(self.fd)
            self.path.unlink(missing_ok=True)
        except ours(OSError):
            pass

    def _close_source(self) -> None:
        if self._source >= 0:
            os.close(self._source)
            self._source = -1

    def _is_ours(self) -> bool:
        status = os.fstat(self.fd)
        return (status.st_dev, status.st_ino) == self.identity

    def _copied(self, place: int) -> bytes:
        """Return a record as it is to be; empty where it is dropped."""
        what = self._old.what[place]
        is_dropped = place < len(self._dropped) and self._dropped[place]
        if is_dropped and what not in (_BOUNDARY, _NATIVE):
            return b""
        data = os.pread(self._source, self._old.length[place], self._old.offset[place])
        if is_dropped:
            self._carry(_decoded(data))
            return b""
        if what == _BOUNDARY and self._events:
            return self._with_events(data)
        if what == _NATIVE and self._stacks:
            return self._with_stacks(data)
        return data

    def _carry(self, record: Record | None) -> None:
        """Keep what later records leave out because a dropped one has it."""
        if isinstance(record, BoundaryRecord):
            self._events |= record.events
        elif isinstance(record, NativeAllocationsRecord):
            self._stacks |= {_row(site): site.stack for site in record.sites if site.stack}

    def _with_events(self, data: bytes) -> bytes:
        record = _decoded(data)
        if not isinstance(record, BoundaryRecord):
            return data
        events, self._events = self._events | record.events, {}
        return to_frame(encode_record(msgspec.structs.replace(record, events=events)))

    def _with_stacks(self, data: bytes) -> bytes:
        record = _decoded(data)
        if not isinstance(record, NativeAllocationsRecord):
            return data
        sites = [
            site
            if site.stack or _row(site) not in self._stacks
            else msgspec.structs.replace(site, stack=self._stacks.pop(_row(site)))
            for site in record.sites
        ]
        return to_frame(encode_record(msgspec.structs.replace(record, sites=sites)))


def _row(site: NativeSite) -> Hashable:
    return site.library, site.function, site.file, site.line, site.kind


def _decoded(data: bytes) -> Record | None:
    frame = next(read_frames(io.BytesIO(data)), None)
    return decode_record(frame.payload) if isinstance(frame, JournalFrame) else None


def unused_path(path: Path) -> Path:
    """Return a name for a second recording of a process, or for equal numbers of two machines."""
    unused, number = path, 1
    while unused.exists():
        number += 1
        unused = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return unused


def _stem(header: HeaderRecord) -> str:
    pid = header.pid or os.getpid()
    if header.worker is not None or header.child is not None:
        of_rank = f"rank{header.rank}-" if header.world_size > 1 else ""
        if header.worker is None:
            return f"{of_rank}child{header.child}-{pid}"
        return f"{of_rank}worker{header.worker}-{pid}"
    return f"rank{header.rank}-{pid}" if header.role == "rank" else f"{header.role}-{pid}"
