"""The writer: appends records to the journal of one process, one system call each.

No buffer, no thread, no lock and nothing at exit: what was acknowledged is in the kernel's hands
and survives whatever becomes of the process. A writer costs its program data at worst, never more.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec

from leakscope.model.errors import ours
from leakscope.model.record import (
    AllocationRecord,
    BlockListRecord,
    CompilationRecord,
    CompiledCodeRecord,
    DeviceSnapshotRecord,
    EndRecord,
    HeaderRecord,
    NativeAllocationsRecord,
    NoteRecord,
    OutOfMemoryRecord,
    OverheadRecord,
    Record,
    SourceRecord,
)
from leakscope.recording.format import encode_record, to_frame

JOURNAL_SUFFIX = ".journal"

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
_OPTIONAL_SHARE = 0.7
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RecordingWriter:
    """Writes the journal of this process into a run directory.

    A child made by ``fork`` inherits the object but writes nothing through it. Neither the
    constructor nor any method raises; :attr:`failed` says why nothing is written any more.
    """

    failed: str | None
    """Why writing stopped, as a sentence; None while it goes on."""
    bytes_written: int

    def __init__(self, directory: Path, header: HeaderRecord, *, max_bytes: int = 500 << 20):
        self.failed = None
        self.bytes_written = 0
        self.path = directory / f"{_stem(header)}{JOURNAL_SUFFIX}"
        self._max_bytes = max_bytes
        self._thinned = False
        self._full = False
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
                left out once the journal has grown to 70 % of its cap or the disk is full.
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
        return self._append(data, optional=isinstance(record, _OPTIONAL)) and self._synced(sync)

    def move(self, directory: Path, header: HeaderRecord) -> bool:
        """Go on in another directory as what the header says; return whether that could be done."""
        target = _unused(directory / f"{_stem(header)}{JOURNAL_SUFFIX}")
        if self._fd < 0 or os.getpid() != self._pid:
            return False
        try:
            self.path.rename(target)
        except ours(OSError):
            return False
        self.path = target
        return self.write(header, sync=True)

    def close(self) -> None:
        """Close the journal; afterwards nothing is written."""
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
        self.path = _unused(self.path)
        try:
            return os.open(self.path, flags, 0o644)
        except ours(FileExistsError):
            own = f"{self.path.stem}-{os.urandom(6).hex()}{JOURNAL_SUFFIX}"
            self.path = self.path.with_name(own)
            return os.open(self.path, flags, 0o644)

    def _admits(self, record: Record, size: int) -> bool:
        share = (self.bytes_written + size) / self._max_bytes
        if isinstance(record, _OPTIONAL):
            if share > _OPTIONAL_SHARE:
                self._thin(f"the recording reached 70 % of its cap of {self._max_bytes} bytes")
            return not self._thinned
        if isinstance(record, _CLOSING):
            return True
        if share > 1:
            cap = f"The recording reached its cap of {self._max_bytes} bytes"
            self._stop("recording-full", f"{cap}; what came afterwards was not recorded.")
        return not self._full

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
        elif optional:
            self._thin("the disk is full")
        else:
            self._stop("recording-stopped", f"The recording stopped: {fault.strerror}.")

    def _synced(self, wanted: bool) -> bool:
        if wanted:
            try:
                os.fsync(self._fd)
            except ours(OSError) as fault:
                if fault.errno not in (errno.EINVAL, errno.ENOTSUP):  # no file that can be synced
                    self._give_up(f"The recording stopped: {fault.strerror} ({self.path}).")
        return True

    def _thin(self, reason: str) -> None:
        if not self._thinned:
            self._thinned = True
            message = f"Sources, allocation windows and device snapshots are left out: {reason}."
            self.write(NoteRecord(slug="recording-thinned", message=message))

    def _stop(self, slug: str, reason: str) -> None:
        """Write closing records alone from now on, and say so while there may be room for it."""
        if not self._full:
            self._full = True
            self.failed = reason
            self._has_noted_end = self.write(NoteRecord(slug=slug, message=reason))

    def _give_up(self, reason: str) -> None:
        self.failed = reason
        self.close()


def _unused(path: Path) -> Path:
    """Return a name for a second recording of a process, or for equal numbers of two machines."""
    unused, number = path, 1
    while unused.exists():
        number += 1
        unused = path.with_name(f"{path.stem}-{number}{JOURNAL_SUFFIX}")
    return unused


def _stem(header: HeaderRecord) -> str:
    pid = header.pid or os.getpid()
    if header.worker is not None or header.child is not None:
        of_rank = f"rank{header.rank}-" if header.world_size > 1 else ""
        if header.worker is None:
            return f"{of_rank}child{header.child}-{pid}"
        return f"{of_rank}worker{header.worker}-{pid}"
    return f"rank{header.rank}-{pid}" if header.role == "rank" else f"{header.role}-{pid}"
