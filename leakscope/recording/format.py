"""The format of a journal: frames that survive damage, and records in them as JSON that is typed
when decoded.

    magic (4) · encoding (1) · length (4) · crc32 (4) · payload · newline

Integers are little-endian and the checksum covers everything after the magic but itself. The magic
begins with a byte that UTF-8 never contains, so no text inside a record can look like a frame. Each
frame stands alone: losing one never makes another unreadable.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import msgspec

from leakscope.model.errors import NewerSchemaError
from leakscope.model.record import SCHEMA_VERSION, HeaderRecord, Record, RunManifest

MAGIC = b"\xffLSK"
PLAIN = b"j"
ZIPPED = b"z"
HEADER = struct.Struct("<4scII")

MAX_PAYLOAD = 64 << 20
"""Bytes of a record, decompressed; larger ones are hostile or damaged."""
MAX_TOTAL = 4 << 30
"""Bytes that the records of one journal may decompress to together."""
_ALWAYS = MAX_PAYLOAD
_MAX_RATIO = 50
"""Beyond ``_ALWAYS`` records may decompress to so many times what they take in the file. Censuses
reach a fifth of it, bombs twenty times as much."""
_MAX_WASTED = 2 << 30
"""Bytes checked in vain before a file made of false starts is given up."""
_ZIP_ABOVE = 2048
"""Boundaries stay below it: compressing them would cost more than writing them."""
_THOROUGH_BELOW = 256 << 10
"""A census loses a fifth more by thorough compression, in a tenth of a millisecond; lists of a
device's blocks are larger, and it would take many."""
_CHUNK = 1 << 20


class JournalFrame(NamedTuple):
    """An intact payload and where its frame begins."""

    offset: int
    payload: bytes


class Gap(NamedTuple):
    """A stretch of a journal in which no intact frame was found."""

    offset: int
    length: int
    reason: str
    is_cut_off: bool = False
    """Whether it begins with a record that a kill left unfinished."""


def to_frame(payload: bytes) -> bytes:
    """Return the bytes to append to a journal for one record."""
    encoding = PLAIN
    if len(payload) > _ZIP_ABOVE:
        level = 6 if len(payload) < _THOROUGH_BELOW else 1
        encoding, payload = ZIPPED, zlib.compress(payload, level)
    checksum = _checksum(encoding, payload)
    return HEADER.pack(MAGIC, encoding, len(payload), checksum) + payload + b"\n"


def read_frames(stream: BinaryIO) -> Iterator[JournalFrame | Gap]:
    """Yield what is intact in a journal, in order, and the gaps between.

    Never raises for what the stream contains; a torn or damaged frame costs itself alone.
    """
    window = _Window(stream)
    gap_from, reason, is_cut_off, wasted, total = -1, "", False, 0, 0
    while window.holds(1) and wasted <= _MAX_WASTED:
        offset = window.offset
        if total > min(MAX_TOTAL, _ALWAYS + _MAX_RATIO * offset):
            break
        payload = _take(window)
        if isinstance(payload, bytes):
            if gap_from >= 0:
                yield Gap(gap_from, offset - gap_from, reason, is_cut_off)
                gap_from = -1
            total += len(payload)
            yield JournalFrame(offset, payload)
            continue
        if gap_from < 0:
            gap_from, reason, is_cut_off = offset, payload.reason, payload.is_cut_off
        wasted += payload.checked
        window.skip_to_magic()
    if gap_from >= 0:
        yield Gap(gap_from, window.offset - gap_from, reason, is_cut_off)
    if window.holds(1):
        yield Gap(window.offset, 0, "reading stopped here: the file is larger than any real one")


class _Failure(NamedTuple):
    reason: str
    checked: int = 0
    """Bytes that had to be looked at to know."""
    is_cut_off: bool = False


_CUT_OFF = _Failure("the last record was cut off while it was written", is_cut_off=True)


class _Window:
    """The part of a stream around the place being read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._base = 0
        self.data = b""
        self.at = 0

    @property
    def offset(self) -> int:
        return self._base + self.at

    def holds(self, size: int) -> bool:
        """Return whether ``size`` bytes follow, reading on as far as needed."""
        while len(self.data) - self.at < size:
            more = self._stream.read(max(_CHUNK, size - len(self.data) + self.at))
            if not more:
                return False
            self._base += self.at
            self.data = self.data[self.at :] + more
            self.at = 0
        return True

    def skip_to_magic(self) -> None:
        """Move on to the next magic, or to the end."""
        self.at += 1
        while (found := self.data.find(MAGIC, self.at)) < 0:
            self.at = max(self.at, len(self.data) - len(MAGIC) + 1)
            if not self.holds(len(MAGIC)):
                self.at = len(self.data)
                return
        self.at = found


def _take(window: _Window) -> bytes | _Failure:
    """Return the payload of the frame that begins here and pass it, or say what is wrong."""
    whole_header = window.holds(HEADER.size)
    start = window.data[window.at : window.at + len(MAGIC)]
    if start != MAGIC[: len(start)]:
        return _Failure("these bytes are no record")
    if not whole_header:
        return _CUT_OFF
    _, encoding, length, checksum = HEADER.unpack_from(window.data, window.at)
    if length > MAX_PAYLOAD:
        return _Failure("a record claims to be larger than any real one")
    if not window.holds(HEADER.size + length):
        return _CUT_OFF
    begin = window.at + HEADER.size
    payload = window.data[begin : begin + length]
    if _checksum(encoding, payload) != checksum:
        return _Failure("a record is damaged (its checksum does not match)", length)
    unpacked = _unpack(encoding, payload)
    if isinstance(unpacked, bytes):
        window.at = begin + length
        # The newline serves people who look at the file; a frame is whole without it.
        if window.holds(1) and window.data[window.at] == 0x0A:
            window.at += 1
    return unpacked


def _unpack(encoding: bytes, payload: bytes) -> bytes | _Failure:
    if encoding == PLAIN:
        return payload
    if encoding != ZIPPED:
        return _Failure(f"a record has an unknown encoding {encoding!r}", len(payload))
    unzip = zlib.decompressobj()
    try:
        unpacked = unzip.decompress(payload, MAX_PAYLOAD)
    except zlib.error:
        return _Failure("a record can't be decompressed", len(payload))
    if not unzip.eof:
        return _Failure("a record is larger than any real one once decompressed", len(unpacked))
    return unpacked


def _checksum(encoding: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(encoding + len(payload).to_bytes(4, "little")))


FORMAT = "leakscope-run"
"""Stands in every manifest, so that a foreign ``run.json`` is never taken for ours."""

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding hostile or damaged bytes may raise."""

_encoder = msgspec.json.Encoder(enc_hook=str)
_decoder = msgspec.json.Decoder(Record)


class UnknownRecordError(Exception):
    """A record of a kind that this leakscope does not know."""


class _Peek(msgspec.Struct):
    """As much of a record or manifest as every version of the format has."""

    type: str = ""
    format: str = ""
    schema_version: int = 1


def encode_record(record: Record) -> bytes:
    """Return a record as JSON."""
    return encode(_versioned(record) if isinstance(record, HeaderRecord) else record)


def decode_record(payload: bytes) -> Record:
    """Return the record in a frame.

    Raises:
        NewerSchemaError: it is the header of a newer format.
        UnknownRecordError: its kind is unknown.
        msgspec.MsgspecError, ValueError, RecursionError: it is no record at all.

    """
    try:
        record: Record = _decoder.decode(payload)
    except msgspec.ValidationError as fault:
        peek = msgspec.json.decode(payload, type=_Peek)
        _require_known(peek.schema_version)
        if peek.type and "$.type" in str(fault):
            raise UnknownRecordError(peek.type) from fault
        raise
    if isinstance(record, HeaderRecord):
        _require_known(record.schema_version)
    return record


def encode_manifest(manifest: RunManifest) -> bytes:
    """Return ``run.json``."""
    return msgspec.json.format(encode({"format": FORMAT, **_versioned(manifest)}), indent=1)


def decode_manifest(data: bytes) -> RunManifest:
    """Return the manifest in ``run.json``; raises as :func:`decode_record` does."""
    _require_known(msgspec.json.decode(data, type=_Peek).schema_version)
    return msgspec.json.decode(data, type=RunManifest)


def is_manifest(data: bytes) -> bool:
    """Return whether these bytes are a manifest of ours, of whichever version."""
    try:
        return msgspec.json.decode(data, type=_Peek).format == FORMAT
    except UNREADABLE:
        return False


def encode(value: Any) -> bytes:
    """Return a value as JSON; names that are no valid Unicode are escaped rather than refused."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_valid_text(msgspec.to_builtins(value, enc_hook=str)))


def _versioned(struct: HeaderRecord | RunManifest) -> dict[str, Any]:
    # Both leave defaults out; a later reader would then take its own version for theirs.
    fields: dict[str, Any] = msgspec.to_builtins(struct, enc_hook=str)
    return {**fields, "schema_version": struct.schema_version}


def _require_known(version: int) -> None:
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"The run was written by a newer leakscope (format {version}; this one reads up to "
            f"{SCHEMA_VERSION}). Upgrade it: pip install --upgrade leakscope.",
            slug="newer-schema",
        )


def _valid_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_valid_text(key): _valid_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_valid_text(item) for item in value]
    return value
