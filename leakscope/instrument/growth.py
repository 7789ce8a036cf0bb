"""Notices growth while the program runs, well enough to know when a closer look is worth it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key
from leakscope.model.census import Census, CensusScope

RISES = 3
"""Rises in a row, at comparable boundaries, that count as growth."""
LEAST_RISE = 4096
LEAST_RSS_RISE = 1 << 20
LEAST_UNNAMED_RISE = 256 << 10
KEYS_KEPT = 48
ROWS_KEPT = 400
CALM_AFTER = 12
"""Censuses in a row in which nothing was seen to grow."""
_HELD = ""
_IN_USE = (gauge.MALLOC_IN_USE, gauge.RSS)
"""What is in use, as near as a boundary tells."""
_INSIDE = (BoundaryKind.STEP, BoundaryKind.BATCH)


class GrowthWatch:
    """Compares each census with the one before it at a comparable boundary."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], dict[str, tuple[int, int]]] = {}
        self._unnamed: dict[tuple[str, str, str, str], _Unnamed] = {}
        self._calm = 0
        self._free = 0
        self._elsewhere: int | None = None
        """What hung outside of the user's names when that last became more or less."""
        self._steps = 0

    @property
    def own_bytes(self) -> int:
        """Rough bytes that the watch keeps."""
        return 300 * sum(len(rows) for rows in self._known.values())

    @property
    def is_calm(self) -> bool:
        """Whether nothing has grown for a while: then fewer measurements will do."""
        return self._calm >= CALM_AFTER

    @property
    def is_unnamed(self) -> bool:
        """Whether memory rises each time of late, and not what the user's names reach.

        Where censuses weigh all that is new, that tells: no walk names what is no Python object's.
        """
        if self._elsewhere is not None:
            return self._steps >= RISES
        rises = max((known.rises for known in self._unnamed.values()), default=0)
        return rises >= RISES

    def growing(self) -> tuple[object, dict[str, int]]:
        """Return where the latest look was taken, and by path the bytes of what rises there."""
        place = next(reversed(self._known), None)
        rows = {} if place is None else self._known[place]
        grown = {path: size for path, (size, rises) in rows.items() if path and rises >= RISES}
        return place, grown

    def learn(self, boundary: Boundary, census: Census, gauges: Mapping[str, int]) -> bool:
        """Take note of a census; return whether something has risen each time of late.

        What the C heap keeps though it is free is left out of resident memory: no closer look can
        name it, and blocks of ours that lie between the program's would spread its holes.
        """
        key = comparable_key(boundary)
        self._learn_unnamed(key, census, gauges)
        before = self._known.pop(key, {})
        if len(self._known) >= KEYS_KEPT:
            del self._known[next(iter(self._known))]
        self._free = gauges.get(gauge.MALLOC_FREE, self._free)
        held = gauges.get(gauge.RSS, 0) - self._free
        now = {_HELD: _rise(before.get(_HELD), held, LEAST_RSS_RISE)}
        for row in census.rows[:ROWS_KEPT]:
            if row.user:
                others = (*row.device_bytes.values(), *row.shared_bytes.values())
                size = row.host_bytes + sum(others)
                now[row.path] = _rise(before.get(row.path), size, LEAST_RISE)
        self._known[key] = now
        grows = any(rises >= RISES for _, rises in now.values())
        self._calm = 0 if grows else self._calm + 1
        return grows

    def _learn_unnamed(
        self, key: tuple[str, str, str], census: Census, gauges: Mapping[str, int]
    ) -> None:
        name = next((name for name in _IN_USE if name in gauges), None)
        if name is None:
            return
        known = (*key, name)
        if known not in self._unnamed and len(self._unnamed) >= KEYS_KEPT:
            return
        used, before = gauges[name], self._unnamed.get(known)
        left = used - census.heap_bytes - census.payload_bytes.get("host", 0)
        rises = 0 if before is None else before.rises
        if census.scope is CensusScope.FULL and before is not None:
            left = before.left + used - before.used  # it reaches what others leave
            rises = rises if used >= before.used + LEAST_UNNAMED_RISE else 0
        elif before is not None:
            rises = rises + 1 if left >= before.left + LEAST_UNNAMED_RISE else 0
        self._unnamed[known] = _Unnamed(used, left, rises)

    def learn_elsewhere(self, census: Census) -> None:
        """Count the steps by which what hangs outside of the user's names has become more."""
        size = census.elsewhere_bytes
        if size is None:
            return
        if self._elsewhere is not None and size >= self._elsewhere + LEAST_UNNAMED_RISE:
            self._steps += 1
        if self._elsewhere is None or abs(size - self._elsewhere) >= LEAST_UNNAMED_RISE:
            self._steps = (
                0 if self._elsewhere is not None and size < self._elsewhere else self._steps
            )
            self._elsewhere = size


class _Unnamed(NamedTuple):
    """What was in use, what of it the user's names didn't reach, and how often that has risen."""

    used: int
    left: int
    rises: int


def _rise(before: tuple[int, int] | None, size: int, least: int) -> tuple[int, int]:
    if before is None or size < before[0] + least:
        return (size, 0)
    return (size, before[1] + 1)


def place_of_growth(boundary: Boundary) -> str:
    """Return the phase in which growth seen at a boundary may be caught; empty for any."""
    return boundary.phase if boundary.kind in (*_INSIDE, BoundaryKind.PHASE_END) else ""
