"""Sketching: which processes a run directory holds recordings of, without reading them.

Of many ranks not all recordings fit into memory at once; each is read by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from leakscope.model.errors import NewerSchemaError
from leakscope.model.record import HeaderRecord
from leakscope.model.run import Recording
from leakscope.recording.directory import journals
from leakscope.recording.frames import Frame, Gap, read_frames
from leakscope.recording.reader import open_run
from leakscope.recording.wire import UNREADABLE, UnknownRecordError, decode_record, encode

FIRST_FRAMES = 50
"""A rank that learns its number late writes its second header among so many."""


@dataclass(frozen=True)
class Sketch:
    """A journal, and which process wrote it."""

    path: Path
    header: HeaderRecord
    bytes: int


def sketch(folder: Path) -> list[Sketch]:
    """Return the journals of a run that say which process wrote them, copies passed over."""
    found: dict[bytes, Sketch] = {}
    for path in journals(folder):
        try:
            headers, size = _headers(path), path.stat().st_size
        except OSError:
            continue
        if headers:
            one, identity = Sketch(path, headers[-1], size), encode(headers[0])
            if identity not in found or found[identity].bytes < size:
                found[identity] = one
    return list(found.values())


def open_recording(journal: Path) -> Recording:
    """Return the recording in a journal, whatever of it can be read; raises as open_run does."""
    return open_run(journal.parent, [journal]).recordings[0]


def is_readable(folder: Path) -> bool:
    """Return whether anything in a run can be read; looks no further than the first record."""
    return any(map(_has_record, journals(folder)))


def _has_record(journal: Path) -> bool:
    try:
        with journal.open("rb", buffering=0) as stream:
            return any(map(_is_record, read_frames(stream)))
    except OSError:
        return False


def _is_record(piece: Frame | Gap) -> bool:
    if not isinstance(piece, Frame):
        return False
    try:
        decode_record(piece.payload)
    except (UnknownRecordError, *UNREADABLE):
        return False
    except NewerSchemaError:
        return True  # of another leakscope's: the report says so
    return True


def _headers(path: Path) -> list[HeaderRecord]:
    """Return the headers at the beginning of a journal: the one that counts is the last."""
    headers: list[HeaderRecord] = []
    is_moved = path.name.startswith("rank")
    with path.open("rb", buffering=0) as stream:
        for number, piece in enumerate(read_frames(stream)):
            if number >= FIRST_FRAMES:
                break
            if isinstance(piece, Frame) and (header := _header_in(piece)) is not None:
                headers.append(header)
                if header.role != "main" or not is_moved:
                    break
    return headers


def _header_in(frame: Frame) -> HeaderRecord | None:
    try:
        record = decode_record(frame.payload)
    except (UnknownRecordError, NewerSchemaError, *UNREADABLE):
        return None
    return record if isinstance(record, HeaderRecord) else None
