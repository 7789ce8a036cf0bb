"""Which native allocations grow: by library and line of the user's, from what was sampled.

A row of the profile is an estimate from some samples, so that its noise is what chance can make of
it. Sites of tensors, arrays and the interpreter are left out: the census counts what these hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.growth import policy
from leakscope.model.native import NativeOwner, NativeSite
from leakscope.model.record import NativeAllocationsRecord
from leakscope.model.trend import Trend

_Key = tuple[str, str, int]


@dataclass(frozen=True)
class NativeGrowth:
    """Native memory that one library allocates below one line of the user's, and keeps."""

    library: str
    function: str
    """The function that has most of it; an offset in the library where there is no symbol."""
    location: str
    """The innermost line of the user's below which it was allocated; empty where none is known."""
    gained_bytes: float
    trend: Trend

    @property
    def name(self) -> str:
        """The library, and the function where it has a name."""
        return f"{self.library} · {self.function}" if self.function else self.library


def growing_allocations(case: Case) -> list[NativeGrowth]:
    """Return the native allocations that go on growing, what gained most first."""
    records = _at_work(case)
    if len(records) < policy.FEWEST_READINGS:
        return []
    done = np.array([case.work_done[at] for at, _ in records], dtype=np.float64)
    rows = [_by_key(record) for _, record in records]
    found = []
    for key in dict.fromkeys(key for row in rows for key in row):
        sites = [row.get(key, []) for row in rows]
        sizes = np.array([sum(site.bytes for site in each) for each in sites], dtype=np.float64)
        chance = float(max(sum(s.deviation_bytes**2 for s in each) for each in sites) ** 0.5)
        noise = max(policy.GAUGE_NOISE_BYTES, policy.SAMPLED_DEVIATIONS * chance)
        trend = case.trend_of(done, sizes, noise)
        if trend.is_growing:
            heaviest = max(sites[-1] or [s for each in sites for s in each], key=lambda s: s.bytes)
            found.append(_growth(case, key, heaviest, trend))
    return sorted(found, key=lambda each: -each.gained_bytes)


def _at_work(case: Case) -> list[tuple[int, NativeAllocationsRecord]]:
    """Return the records of the run's work with the positions of their boundaries."""
    positions = {index: at for at, index in enumerate(case.track.index.tolist())}
    working = set(case.working.tolist())
    placed = [(positions.get(r.boundary, -1), r) for r in case.recording.native_allocations]
    return [(at, r) for at, r in placed if r.is_on and at in working]


def _by_key(record: NativeAllocationsRecord) -> dict[_Key, list[NativeSite]]:
    found: dict[_Key, list[NativeSite]] = {}
    for site in record.sites:
        if site.owner is NativeOwner.LIBRARY:
            found.setdefault((site.library, site.file, site.line), []).append(site)
    return found


def _growth(case: Case, key: _Key, heaviest: NativeSite, trend: Trend) -> NativeGrowth:
    library, file, line = key
    return NativeGrowth(
        library=library or "a library that was unloaded",
        function=heaviest.function,
        location=case.sources.location(file, line) if file and line else "",
        gained_bytes=trend.net_bytes,
        trend=trend,
    )
