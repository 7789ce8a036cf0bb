"""A snapshot file as plain values: pickle or JSON, gzipped or not, whatever its name."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import Any

import msgspec

from leakscope.analysis.cuda.pickles import UntrustedPickleError, load_plain
from leakscope.model.errors import NoSnapshotError

MOST_BYTES = 2 << 30
"""A file that is larger, or unpacks to more, is refused: the largest seen had 100 MB."""
_GZIP = b"\x1f\x8b"
_ARCHIVE = b"PK\x03\x04"
_LOOKED_AT = 4096
_JSON_BEGINS = (b"{", b"[")


def read_plain(path: Path) -> Any:
    """Return what a file holds as dicts, lists, texts and numbers; nothing in it is executed.

    Raises:
        NoSnapshotError: it can't be read, is too large, or is neither pickle nor JSON.

    """
    data = _unpacked(path, _bytes_of(path))
    if data.startswith(_ARCHIVE):
        raise _refusal(path, "it is an archive, as torch.save writes; snapshots are pickles")
    if data.lstrip()[:1] in _JSON_BEGINS and _reads_as_text(data):
        return _from_json(path, data)
    try:
        return load_plain(data)
    except UntrustedPickleError as fault:
        if _is_text(data):
            raise _refusal(path, "it is text, not a pickle") from fault
        raise _refusal(path, str(fault)) from fault


def _bytes_of(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _refusal(path, f"it is larger than {MOST_BYTES >> 30} GiB")
        return path.read_bytes()
    except OSError as fault:
        raise NoSnapshotError(
            f"{path} can't be read ({fault.strerror or fault}).", slug="no-snapshot"
        ) from fault


def _unpacked(path: Path, data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            unpacked = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as fault:
        raise _refusal(path, f"its gzip is damaged ({fault})") from fault
    if len(unpacked) > MOST_BYTES:
        raise _refusal(path, f"it unpacks to more than {MOST_BYTES >> 30} GiB")
    return unpacked


def _reads_as_text(data: bytes) -> bool:
    # A pickle of protocol 0 or 1 may begin with a brace or a bracket too.
    return not data.endswith(b".")


def _is_text(data: bytes) -> bool:
    try:
        text = data[:_LOOKED_AT].decode(errors="strict" if len(data) <= _LOOKED_AT else "ignore")
    except UnicodeDecodeError:
        return False
    return bool(text) and _reads_as_text(data) and "".join(text.split()).isprintable()


def _from_json(path: Path, data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as fault:
        raise _refusal(path, f"its JSON is damaged ({fault})") from fault


def _refusal(path: Path, reason: str) -> NoSnapshotError:
    return NoSnapshotError(f"{path} is no snapshot of torch's: {reason}.", slug="no-snapshot")
