"""Keeps the text of the user's files that a census named, while they still say what they did.

The cells of a notebook are no files: all of them are kept, for any may feed what another defined.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from pathlib import Path

from leakscope.model.interrupts import ours
from leakscope.model.notebook import cells_of_shell
from leakscope.model.record import SourceRecord

MOST_BYTES = 400_000
MOST_FILES = 300
MOST_CELLS = 100
_WRAPPED = "get_ipython().run_cell_magic('leakscope'"
"""What IPython makes of a cell that begins with our magic; the cell itself is run inside."""


class Sources:
    """Yields each source file once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._cells: set[str] = set()

    def new(self, paths: Iterable[str]) -> Iterable[SourceRecord]:
        """Yield the text of the files that were not yielded before and can be read."""
        for path in sorted(set(paths) - self._seen):
            if len(self._seen) >= MOST_FILES:
                return
            self._seen.add(path)
            text = _read(Path(path))
            if text is not None:
                yield SourceRecord(path=path, text=text)

    def new_cells(self) -> Iterable[SourceRecord]:
        """Yield the latest cells of a notebook that were not yielded before."""
        cells = cells_of_shell()
        for path, number in [*cells.items()][-MOST_CELLS:]:
            if f"{path} {number}" in self._cells or len(self._cells) >= MOST_FILES:
                continue
            self._cells.add(f"{path} {number}")  # a cell that is run again has the same path
            text = _text_of_cell(path)
            if text and len(text) <= MOST_BYTES and not text.startswith(_WRAPPED):
                yield SourceRecord(path=path, text=text, title=f"In [{number}]")


def _text_of_cell(path: str) -> str:
    known = linecache.cache.get(path)
    return "".join(known[2]) if known is not None and len(known) == 4 else ""


def _read(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return None
        return path.read_bytes().decode("utf-8", "replace")
    except ours(OSError):
        return None
