"""Reads a journal while its process writes it: which one that is, and what is new in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from leakscope.model.record import HeaderRecord, Record
from leakscope.recording.frames import MAGIC, Frame, read_frames
from leakscope.recording.wire import UNREADABLE, UnknownRecordError, decode_record
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
        self._last = -1

    def new(self) -> Iterator[Record]:
        """Yield the records that were written whole since the last call.

        Raises:
            OSError: the journal can't be read any more.
            NewerSchemaError: it is of a newer format.

        """
        with self.journal.open("rb", buffering=0) as stream:
            begin = stream.seek(max(self._last, 0))
            for piece in read_frames(stream):
                if not isinstance(piece, Frame) or begin + piece.offset <= self._last:
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
        with journal.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                return None
        first = next(Following(journal, (HeaderRecord,)).new(), None)
    except OSError:
        return None
    return first if isinstance(first, HeaderRecord) else None
