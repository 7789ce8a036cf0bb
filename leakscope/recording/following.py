"""Reads a journal while its process writes it, and says whether that process still does."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from leakscope.model.errors import NewerSchemaError
from leakscope.model.record import BoundaryRecord, EndRecord, HeaderRecord, Record
from leakscope.model.run import Measurement, Recording
from leakscope.recording.directory import OUTCOME, is_journal, journals
from leakscope.recording.format import (
    UNREADABLE,
    JournalFrame,
    UnknownRecordError,
    decode_record,
    read_frames,
)
from leakscope.recording.writer import JOURNAL_SUFFIX

_TAG = 64
"""Bytes at the head of a record that name its kind."""


def tags_of(*kinds: type[Record]) -> tuple[bytes, ...]:
    """Return what stands at the head of records of these kinds."""
    return tuple(f'"type":"{kind.__struct_config__.tag}"'.encode() for kind in kinds)


def is_tagged(payload: bytes, tags: tuple[bytes, ...]) -> bool:
    """Return whether a record is of one of the kinds with these tags, without decoding it."""
    return any(tag in payload[:_TAG] for tag in tags)


class Following:
    """The records of a journal, a few kinds of them, as they come."""

    def __init__(self, journal: Path, kinds: tuple[type[Record], ...]) -> None:
        """Follow a journal from its beginning; only records of these kinds are decoded."""
        self.journal = journal
        self._tags = tags_of(*kinds)
        self._last, self._file = -1, 0

    def new(self) -> Iterator[Record]:
        """Yield the records that were written whole since the last call; all of them again where
        the journal was thinned meanwhile.

        Raises:
            OSError: the journal can't be read any more.
            NewerSchemaError: it is of a newer format.

        """
        with self.journal.open("rb", buffering=0) as stream:
            number = os.fstat(stream.fileno()).st_ino
            if number != self._file:
                self._last, self._file = -1, number
            begin = stream.seek(max(self._last, 0))
            for piece in read_frames(stream):
                if not isinstance(piece, JournalFrame) or begin + piece.offset <= self._last:
                    continue  # a record may be half written; what was the last then comes again
                self._last = begin + piece.offset
                if is_tagged(piece.payload, self._tags):
                    try:
                        yield decode_record(piece.payload)
                    except (UnknownRecordError, *UNREADABLE):
                        continue


def open_journals(pid: int) -> list[tuple[Path, HeaderRecord]]:
    """Return the journals that a process has open, its parent's among them, and who writes each.

    Raises:
        FileNotFoundError: there is no such process, or no ``/proc``.
        PermissionError: it is another user's.

    """
    targets = {_target(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
    written = {path: _header(path) for path in targets if path.suffix == JOURNAL_SUFFIX}
    return sorted((path, header) for path, header in written.items() if header is not None)


def _target(link: Path) -> Path:
    try:
        return link.readlink()
    except OSError:  # closed meanwhile
        return Path()


def _header(journal: Path) -> HeaderRecord | None:
    try:
        if not is_journal(journal):
            return None
        first = next(Following(journal, (HeaderRecord,)).new(), None)
    except OSError:
        return None
    return first if isinstance(first, HeaderRecord) else None


_CLOCK_SLACK_S = 2.0
"""The kernel's word on when a process began is rounded, and the clock may have been set since."""
_SILENT_FOR_S = 6 * 3600.0
"""A process of another machine that has recorded nothing for so long is taken for gone."""


def goes_on(recording: Recording) -> bool | None:
    """Return whether a recording without a closing record goes on; None where that is unknown.

    Of a process on another machine nothing is known while its last record is recent.
    """
    header = recording.header
    if recording.end is not None or not header.started:
        return False
    if header.host != socket.gethostname():
        return None if time.time() - _last_moment(recording) < _SILENT_FOR_S else False
    import psutil

    try:
        process = psutil.Process(header.pid)
        is_same = process.create_time() <= header.started + _CLOCK_SLACK_S or _writes(header)
        return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _writes(header: HeaderRecord) -> bool:
    """Return whether a process has the journal with this header open, whatever its clock says.

    Where the clock was set forward meanwhile, the kernel's word on when it began moves along.
    """
    try:
        written = open_journals(header.pid)
    except OSError:
        return False
    return any(known.started == header.started for _, known in written)


def folder_goes_on(folder: Path) -> bool | None:
    """Return whether a process still records into a run directory; None where that is unknown.

    Censuses are passed over, so that a long recording is read in a moment.
    """
    if (folder / OUTCOME).exists():
        return False
    ongoing = [goes_on(recording) for path in journals(folder) if (recording := _sketch(path))]
    return True if True in ongoing else None if None in ongoing else False


def _sketch(journal: Path) -> Recording | None:
    """Return a recording without what was measured; None where nothing can be read."""
    recording = Recording(HeaderRecord())
    try:
        for record in Following(journal, (HeaderRecord, BoundaryRecord, EndRecord)).new():
            if isinstance(record, HeaderRecord):
                recording.header = record
            elif isinstance(record, BoundaryRecord):
                recording.measurements = [Measurement(record.boundary, {})]
            elif isinstance(record, EndRecord):
                recording.end = record
    except (OSError, NewerSchemaError):
        return None
    return recording


def _last_moment(recording: Recording) -> float:
    measured = recording.measurements
    return recording.header.started + (measured[-1].boundary.time_s if measured else 0.0)
