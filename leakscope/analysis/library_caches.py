"""Cached functions of libraries that gather: only full censuses look at them, and those are few.

Two readings are no trend. But where memory grows without a name, and a cache grew between them at a
rate that makes up most of it, it is the first place to look at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.filling import CAPACITY_OF_LIMIT
from leakscope.analysis.series import HOST
from leakscope.model.census import CensusRow

KIND = "lru_cache"


@dataclass(frozen=True)
class Gathering:
    """A cached function of a library with more and more results."""

    row: CensusRow
    gained: float
    """What it gained in the run's comparable part, at the rate between its readings."""
    first: int
    last: int
    """How many results it held at its first and last reading."""
    is_harmless: bool
    """Whether it declares a bound at which it stays far below the limit of memory."""

    @property
    def place(self) -> str:
        """Where the function is defined; empty where that isn't known."""
        owner = self.row.owner
        return f"{owner.file}:{owner.line}" if owner is not None and owner.file else ""


def most_gathering(case: Case) -> Gathering | None:
    """Return the cached function of a library that gained most, if any did each time."""
    table = case.table
    chosen = (p for p, row in enumerate(table.latest) if row.kind == KIND and not row.user)
    found = [one for path in chosen if (one := _gathering(case, path)) is not None]
    return max(found, key=lambda one: one.gained, default=None)


def _gathering(case: Case, path: int) -> Gathering | None:
    table, row, window = case.table, case.table.latest[path], case.window
    values, lengths = table.retained[HOST][path], table.length[path]
    seen = np.flatnonzero(np.isfinite(values) & np.isfinite(lengths) & table.full)
    if window is None or len(seen) < 2:
        return None
    y, entries, done = values[seen], lengths[seen], case.work_done[table.at[seen]]
    if not (np.diff(y) > 0).all() or not (np.diff(entries) > 0).all() or done[-1] <= done[0]:
        return None
    worked = case.work_done[window.last] - case.work_done[window.first]
    gained = float((y[-1] - y[0]) / (done[-1] - done[0]) * worked)
    full = y[-1] / entries[-1] * row.capacity if row.capacity else float("inf")
    if row.capacity:
        gained = min(gained, float(full))
    limit = case.limit_bytes or float("inf")
    is_harmless = bool(row.capacity) and full < CAPACITY_OF_LIMIT * limit
    return Gathering(row, gained, int(entries[0]), int(entries[-1]), is_harmless)
