"""Which releases of torch write such a file: told by the keys that each release added."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

LOOKED_AT = 50
_ENTRY_KEYS = (("pool_id", "2.12"), ("user_metadata", "2.10"), ("compile_context", "2.8"))


def version_of(told: dict[str, Any]) -> str:
    """Return ``2.5 or newer``, or the one release, as far as the keys tell; else empty."""
    entries = list(islice(_dicts(_nested(told, "device_traces")), LOOKED_AT))
    for key, release in _ENTRY_KEYS:
        if any(key in entry for entry in entries):
            return f"{release} or newer"
    if "external_annotations" in told:
        return "2.5 or newer"
    if "allocator_settings" in told:
        return "2.3 or 2.4"
    blocks = list(islice(_dicts(_of_segments(told)), LOOKED_AT))
    if any("history" in block for block in blocks):
        return "2.0"
    return "2.1 or newer" if blocks else ""


def _nested(told: dict[str, Any], key: str) -> Iterator[Any]:
    traces = told.get(key)
    lists = [item for item in traces if isinstance(item, list)] if isinstance(traces, list) else []
    # A few of each device: the ring of one may be empty.
    return chain.from_iterable(islice(item, LOOKED_AT) for item in lists)


def _of_segments(told: dict[str, Any]) -> Iterator[Any]:
    segments = told.get("segments")
    listed = segments if isinstance(segments, list) else []
    blocks = (item.get("blocks") for item in listed if isinstance(item, dict))
    return chain.from_iterable(item for item in blocks if isinstance(item, list))


def _dicts(items: Iterator[Any]) -> Iterator[dict[str, Any]]:
    return (item for item in items if isinstance(item, dict))
