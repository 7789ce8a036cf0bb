"""Notices growth while the program runs, well enough to know when a closer look is worth it."""

from __future__ import annotations

from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key
from leakscope.model.census import Census

RISES = 3
"""Rises in a row, at comparable boundaries, that count as growth."""
LEAST_RISE = 4096
LEAST_RSS_RISE = 1 << 20
KEYS_KEPT = 48
ROWS_KEPT = 400
CALM_AFTER = 12
"""Censuses in a row in which nothing was seen to grow."""
_RSS = ""
_INSIDE = (BoundaryKind.STEP, BoundaryKind.BATCH)


class GrowthWatch:
    """Compares each census with the one before it at a comparable boundary."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], dict[str, tuple[int, int]]] = {}
        self._calm = 0

    @property
    def own_bytes(self) -> int:
        """Rough bytes that the watch keeps."""
        return 300 * sum(len(rows) for rows in self._known.values())

    @property
    def is_calm(self) -> bool:
        """Whether nothing has grown for a while: then fewer measurements will do."""
        return self._calm >= CALM_AFTER

    def learn(self, boundary: Boundary, census: Census, rss: int) -> bool:
        """Take note of a census; return whether something has risen each time of late."""
        key = comparable_key(boundary)
        before = self._known.pop(key, {})
        if len(self._known) >= KEYS_KEPT:
            del self._known[next(iter(self._known))]
        now = {_RSS: _rise(before.get(_RSS), rss, LEAST_RSS_RISE)}
        for row in census.rows[:ROWS_KEPT]:
            if row.user:
                others = (*row.device_bytes.values(), *row.shared_bytes.values())
                size = row.host_bytes + sum(others)
                now[row.path] = _rise(before.get(row.path), size, LEAST_RISE)
        self._known[key] = now
        grows = any(rises >= RISES for _, rises in now.values())
        self._calm = 0 if grows else self._calm + 1
        return grows


def _rise(before: tuple[int, int] | None, size: int, least: int) -> tuple[int, int]:
    if before is None or size < before[0] + least:
        return (size, 0)
    return (size, before[1] + 1)


def place_of_growth(boundary: Boundary) -> str:
    """Return the phase in which growth seen at a boundary may be caught; empty for any."""
    return boundary.phase if boundary.kind in (*_INSIDE, BoundaryKind.PHASE_END) else ""
