"""Records and documents as JSON: typed when decoded, so that nothing in them can be executed."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from leakscope.model.errors import NewerSchemaError
from leakscope.model.record import SCHEMA_VERSION, HeaderRecord, Record, RunManifest

FORMAT = "leakscope-run"
"""Stands in every manifest, so that a foreign ``run.json`` is never taken for ours."""

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding hostile or damaged bytes may raise."""

_encoder = msgspec.json.Encoder(enc_hook=str)
_decoder = msgspec.json.Decoder(Record)
_T = TypeVar("_T")


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


def decode(data: bytes, form: type[_T]) -> _T:
    """Return JSON as a value of the given type; raises one of :data:`UNREADABLE`."""
    return msgspec.json.decode(data, type=form)


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
