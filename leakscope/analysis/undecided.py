"""Undecided: what was larger whenever it was looked at again, too seldom for a verdict.

On a busy machine censuses lie now at one boundary, now at another. Such a path is not accused, for
it may be warming up; the run that has one is not called clean either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakscope.analysis.across import Comparables
from leakscope.analysis.case import Case
from leakscope.analysis.growers import ROW_NOISE_BYTES
from leakscope.analysis.search import Growth
from leakscope.analysis.series import FloatArray, IntArray
from leakscope.model.trend import TrendVerdict

LEAST_BYTES = 2 << 20
FEWEST_RISES = 3
"""At boundaries that were looked at again; each must be a rise."""
_PARTS = {"parameters", "buffers", "gradients", "optimizer_state", "code"}


@dataclass(frozen=True)
class Undecided:
    """A path that may leak."""

    path: int
    """Its place in the table of rows."""
    name: str
    bytes: int
    """What it gained from the first look to the last."""


def find_undecided(case: Case, growth: Growth) -> list[Undecided]:
    """Return the paths of the user's that may leak, outermost, the largest first."""
    table = case.table
    judged = {g.path for g in (*growth.growers, *growth.filling)}
    kin = judged | {above for path in judged for above in table.ancestors(path)}
    found: dict[int, Undecided] = {}
    waiting = [path for path, trend in growth.trends.items() if _is_open(case, path, trend.verdict)]
    for path in sorted(waiting, key=lambda p: (len(table.ancestors(p)), p)):
        if path in kin or not found.keys().isdisjoint(table.ancestors(path)):
            continue
        gained = max(_risen(case.comparables, path, device) for device in table.retained)
        if gained >= LEAST_BYTES and judged.isdisjoint(table.ancestors(path)):
            found[path] = Undecided(path, table.latest[path].name, int(gained))
    return sorted(found.values(), key=lambda one: -one.bytes)


def _is_open(case: Case, path: int, verdict: TrendVerdict) -> bool:
    row = case.table.latest[path]
    return verdict is TrendVerdict.INCONCLUSIVE and row.user and row.role not in _PARTS


def only_rose(comparables: Comparables, path: int, device: str) -> bool:
    """Return whether a path was never seen lower than before, and is larger than at first."""
    known = _known(comparables, path, device)[1]
    rises = np.diff(known)
    return bool((rises >= -ROW_NOISE_BYTES).all() and rises.sum() > ROW_NOISE_BYTES)


def _risen(comparables: Comparables, path: int, device: str) -> float:
    """Return what a path gained in all, 0 where it was ever seen to fall or to rest."""
    seen, known = _known(comparables, path, device)
    groups = [np.flatnonzero(np.isin(seen, group)) for group in comparables.strict]
    again = np.concatenate([np.zeros(0), *(np.diff(known[g]) for g in groups)])
    rests = (again <= ROW_NOISE_BYTES).any() or len(again) < FEWEST_RISES
    if rests or not only_rose(comparables, path, device):
        return 0.0
    return float(known[-1] - known[0])


def _known(comparables: Comparables, path: int, device: str) -> tuple[IntArray, FloatArray]:
    """Return the censuses from a path's first appearance to the end of the work, and its bytes."""
    table = comparables.table
    values = table.retained[device][path]
    seen = np.flatnonzero(table.covered(path) & (table.at <= comparables.track.last_work))
    seen = seen[np.cumsum(np.isfinite(values[seen])) > 0]
    return seen, np.nan_to_num(values[seen])
