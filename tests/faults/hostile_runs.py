"""Run directories as somebody might make them who wants to do harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from leakscope.recording.format import to_frame

MANIFEST = b'{"format":"leakscope-run"}'
HEADER = {"type": "header", "pid": 1}
END = {"type": "end", "status": "completed", "time_s": 9.0}


def boundary(number: int, gauges: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    where = {"index": number, "kind": "step", "time_s": float(number), "phase": "train"}
    return {
        "type": "boundary",
        "boundary": {**where, "step": number, **fields},
        "gauges": {"rss": 10**6 + number} if gauges is None else gauges,
    }


def row(path: str = "a", **fields: Any) -> dict[str, Any]:
    known = {"path": path, "name": path, "root": "global", "type": "list", "kind": "list"}
    return {**known, "host_bytes": 1000, **fields}


def census(index: int, *rows: dict[str, Any], **fields: Any) -> dict[str, Any]:
    known = {"scope": "full", "cutoff_bytes": 1, "objects": 10, "heap_bytes": 10}
    return {"type": "census", "boundary": index, "census": {**known, "rows": rows, **fields}}


def write_run(
    folder: Path, *records: dict[str, Any] | bytes, manifest: bytes = MANIFEST, **files: bytes
) -> Path:
    """Write a run of these records, as they are where they are bytes, and return its folder."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes(manifest)
    payloads = (r if isinstance(r, bytes) else json.dumps(r).encode() for r in (HEADER, *records))
    (folder / "main-1.journal").write_bytes(b"".join(map(to_frame, payloads)))
    for name, data in files.items():
        (folder / f"{name}.json").write_bytes(data)
    return folder
