"""Keeps the text of the user's files that a census named, while they still say what they did."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from leakscope.model.interrupts import ours
from leakscope.model.record import SourceRecord

MOST_BYTES = 400_000
MOST_FILES = 300


class Sources:
    """Yields each source file once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def new(self, paths: Iterable[str]) -> Iterable[SourceRecord]:
        """Yield the text of the files that were not yielded before and can be read."""
        for path in sorted(set(paths) - self._seen):
            if len(self._seen) >= MOST_FILES:
                return
            self._seen.add(path)
            text = _read(Path(path))
            if text is not None:
                yield SourceRecord(path=path, text=text)


def _read(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return None
        return path.read_bytes().decode("utf-8", "replace")
    except ours(OSError):
        return None
