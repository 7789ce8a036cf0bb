"""Which line of the user's code is at work, and the text of the files that a census named.

The cells of a notebook are no files: all of them are kept, for any may feed what another defined.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from leakscope.model.census import cells_of_shell, is_installed
from leakscope.model.errors import OUR_FILES, ours
from leakscope.model.record import SourceRecord

Site = tuple[str, int]
"""File and line of the user's code that started something."""

FILES_KEPT = 4096
_STANDARD = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")
)
NOT_USERS = ("<frozen", OUR_FILES, *_STANDARD)
"""What the names of files begin with that are not the user's."""
_is_user: dict[str, bool] = {}


def call_site() -> Site:
    """Return file and line of the innermost frame of the user's; of any but ours without one."""
    return call_route()[0]


def call_route() -> tuple[Site, int]:
    """Return the call site, and a number for the way through libraries from there to here.

    A trainer of a library's trains and evaluates at one line of the user's: the way tells which.
    """
    frame: FrameType | None = sys._getframe(1)
    innermost: FrameType | None = None
    route = 0
    while frame is not None:
        file = frame.f_code.co_filename
        if belongs_to_user(file):
            return (file, frame.f_lineno), route
        if not file.startswith(OUR_FILES):
            innermost = innermost or frame
            route = hash((route, file, frame.f_lineno))
        frame = frame.f_back
    site = ("", 0) if innermost is None else (innermost.f_code.co_filename, innermost.f_lineno)
    return site, route


def belongs_to_user(file: str) -> bool:
    """Return whether a source file is neither ours nor an installed library's."""
    known = _is_user.get(file)
    if known is None:
        if len(_is_user) >= FILES_KEPT:
            _is_user.clear()
        known = _is_user[file] = not (file.startswith(NOT_USERS) or is_installed(file))
    return known


class WeakNumbering:
    """Numbers objects; unlike ``id()`` a number is never given twice. Keeps nothing alive."""

    def __init__(self, gone: Callable[[int], None] | None = None) -> None:
        self._gone = gone
        self._next = count(1)
        self._known: dict[int, tuple[int, weakref.ref[Any]]] = {}

    def of(self, thing: object) -> int:
        """Return the number of an object, the same each time."""
        known = self._known.get(id(thing))
        if known is not None:
            return known[0]
        number, address = next(self._next), id(thing)
        self._known[address] = (number, weakref.ref(thing, self._forgetter(address)))
        return number

    def known(self) -> list[tuple[int, Any]]:
        """Return the numbered objects that are still alive."""
        alive = ((number, reference()) for number, reference in list(self._known.values()))
        return [(number, thing) for number, thing in alive if thing is not None]

    def is_alive(self, number: int) -> bool:
        """Return whether the object of a number still exists."""
        return any(known == number for known, _ in list(self._known.values()))

    def find(self, thing: object) -> int | None:
        """Return the number of an object that has one."""
        known = self._known.get(id(thing))
        return None if known is None else known[0]

    def clear(self) -> None:
        """Forget everything."""
        self._gone = None
        self._known.clear()

    def _forgetter(self, address: int) -> Callable[[object], None]:
        def forget(_: object) -> None:
            known = self._known.pop(address, None)
            if known is not None and self._gone is not None:
                self._gone(known[0])

        return forget


MOST_BYTES = 400_000
MOST_FILES = 300
MOST_CELLS = 100
_WRAPPED = "get_ipython().run_cell_magic('leakscope'"
"""What IPython makes of a cell that begins with our magic; the cell itself is run inside."""


class SourceTexts:
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
            known = linecache.cache.get(path)
            text = "".join(known[2]) if known is not None and len(known) == 4 else ""
            if text and len(text) <= MOST_BYTES and not text.startswith(_WRAPPED):
                yield SourceRecord(path=path, text=text, title=f"In [{number}]")


def _read(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return None
        return path.read_bytes().decode("utf-8", "replace")
    except ours(OSError):
        return None
