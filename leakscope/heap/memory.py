"""What one census remembers of the ones before: sizes by path, to keep rows that matter."""

from __future__ import annotations

import sys
from typing import NamedTuple

from leakscope.model.census import CensusRow

_LIBRARY_CHANGE = 64 * 1024
"""A library's row is worth saying once it has changed by more than this."""
_LIBRARY_SIZE = 1 << 20
"""Or where it retains this much."""
_PATHS_PER_ROW = 4
"""Paths remembered, as a multiple of the rows of a census."""
_LEAST_PATHS = 200
_FORGOTTEN_AFTER = 50
"""Censuses after which a path that did not come back is forgotten."""


class _Last(NamedTuple):
    nbytes: int
    census: int
    told: bool


class RowMemory:
    """Chooses the rows of a census: what grew, what was told before, what is large."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._last: dict[str, _Last] = {}
        self._grew: dict[str, int] = {}
        self._census = 0
        self._knows_libraries = False

    def copy(self) -> RowMemory:
        """Return one that remembers the same."""
        other = RowMemory(self._max_rows)
        other._last = dict(self._last)
        other._census = self._census
        other._knows_libraries = self._knows_libraries
        return other

    def choose(self, rows: list[CensusRow], *, full: bool) -> list[CensusRow]:
        """Return the rows to record, the heaviest first, and remember the sizes of all."""
        self._census += 1
        self._grew = {row.path: self._growth_of(row) for row in rows}
        wanted = [row for row in rows if row.user or self._is_told(row)]
        wanted.sort(key=self._precedence)
        chosen = wanted[: self._max_rows]
        self._remember(rows, {row.path for row in chosen})
        self._knows_libraries = self._knows_libraries or full
        return sorted(chosen, key=lambda row: (not row.user, -total_bytes(row), row.path))

    def growth(self, path: str) -> int:
        """Return by how much a row of the latest census has grown; 0 for a new one."""
        return self._grew.get(path, 0)

    def own_bytes(self) -> int:
        """Return what is kept between censuses."""
        kept = (self._last, self._grew)
        return sum(sys.getsizeof(d) + sum(map(sys.getsizeof, d)) + 120 * len(d) for d in kept)

    def _growth_of(self, row: CensusRow) -> int:
        """A new name of the user's may be old data; a library's is news once all were seen."""
        last = self._last.get(row.path)
        if last is not None:
            return reached_bytes(row) - last.nbytes
        return reached_bytes(row) if self._knows_libraries and not row.user else 0

    def _is_told(self, row: CensusRow) -> bool:
        """Of a library only what is large is told, at its top or if it gathers, and what changes.

        Once told, a row is always.
        """
        last = self._last.get(row.path)
        if abs(self._grew[row.path]) > _LIBRARY_CHANGE or (last and last.told):
            return True
        gathers = row.length is not None
        return (gathers or not row.parent) and total_bytes(row) >= _LIBRARY_SIZE

    def _precedence(self, row: CensusRow) -> tuple[bool, bool, bool, int]:
        last = self._last.get(row.path)
        grows = row.length is not None and self._grew[row.path] > 0
        return (not row.user, not grows, last is None or not last.told, -total_bytes(row))

    def _remember(self, rows: list[CensusRow], chosen: set[str]) -> None:
        for row in rows:
            told = row.path in chosen
            self._last[row.path] = _Last(reached_bytes(row), self._census, told)
        recent = [p for p in self._last.items() if p[1].census > self._census - _FORGOTTEN_AFTER]
        recent.sort(key=_newest_first)
        self._last = dict(recent[: max(_LEAST_PATHS, _PATHS_PER_ROW * self._max_rows)])


def _newest_first(item: tuple[str, _Last]) -> tuple[int, int]:
    return (-item[1].census, -item[1].nbytes)


def total_bytes(row: CensusRow) -> int:
    """Return what a row retains on all devices."""
    return row.host_bytes + sum(row.device_bytes.values())


def reached_bytes(row: CensusRow) -> int:
    """Return what is named through a row on all devices, what others keep alive too included."""
    return total_bytes(row) + sum(row.shared_bytes.values())
