"""What one census remembers of the ones before: sizes by path, to keep rows that matter."""

from __future__ import annotations

import sys
from typing import NamedTuple

from leakscope.model.census import CensusRow

_LIBRARY_CHANGE = 64 * 1024
"""A library's row is worth saying once it has changed by more than this."""
_LIBRARY_SIZE = 1 << 20
"""Or where it stands at the top and retains this much."""
_PATHS_PER_ROW = 4
"""Paths remembered, as a multiple of the rows of a census."""


class _Last(NamedTuple):
    nbytes: int
    census: int
    told: bool


class RowMemory:
    """Chooses the rows of a census: what grew, what was said before, what is large."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._last: dict[str, _Last] = {}
        self._grew: dict[str, int] = {}
        self._census = 0

    def choose(self, rows: list[CensusRow]) -> list[CensusRow]:
        """Return the rows to record, the outer before the inner, and remember their sizes."""
        self._census += 1
        self._grew = {row.path: total_bytes(row) - self._before(row) for row in rows}
        wanted = [row for row in rows if row.user or self._is_told(row)]
        wanted.sort(key=self._precedence)
        chosen = wanted[: self._max_rows]
        self._remember(rows, chosen)
        return sorted(chosen, key=lambda row: (not row.user, -total_bytes(row), row.path))

    def growth(self, path: str) -> int:
        """Return by how much a row of the latest census has grown; 0 for a new one."""
        return self._grew.get(path, 0)

    def own_bytes(self) -> int:
        """Return what is kept between censuses."""
        kept = (self._last, self._grew)
        return sum(sys.getsizeof(d) + sum(map(sys.getsizeof, d)) + 120 * len(d) for d in kept)

    def _before(self, row: CensusRow) -> int:
        last = self._last.get(row.path)
        return total_bytes(row) if last is None else last.nbytes

    def _is_told(self, row: CensusRow) -> bool:
        """Of a library only the large is told, at its top, and what changes; once told, always."""
        last = self._last.get(row.path)
        if abs(self._grew[row.path]) > _LIBRARY_CHANGE or (last and last.told):
            return True
        return not row.parent and total_bytes(row) >= _LIBRARY_SIZE

    def _precedence(self, row: CensusRow) -> tuple[bool, bool, bool, int]:
        grows = row.length is not None and self._grew[row.path] > 0
        return (not row.user, not grows, row.path not in self._last, -total_bytes(row))

    def _remember(self, rows: list[CensusRow], chosen: list[CensusRow]) -> None:
        told = {row.path for row in chosen}
        for row in rows:
            if row.path in told or not row.user:
                self._last[row.path] = _Last(total_bytes(row), self._census, row.path in told)
        limit = _PATHS_PER_ROW * self._max_rows
        if len(self._last) > limit:
            newest = sorted(self._last.items(), key=_newest_first)
            self._last = dict(newest[:limit])


def _newest_first(item: tuple[str, _Last]) -> tuple[int, int]:
    return (-item[1].census, -item[1].nbytes)


def total_bytes(row: CensusRow) -> int:
    """Return what a row retains on all devices."""
    return row.host_bytes + sum(row.device_bytes.values())
