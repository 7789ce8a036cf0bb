"""Undecided: what rises and may go on, too short a time to tell from a jump or a fill.

Such a path is not accused; a run that has one is not called clean either.
"""

from __future__ import annotations

from dataclasses import dataclass

from leakscope.analysis.case import Case
from leakscope.analysis.growth import policy
from leakscope.analysis.search import Growth
from leakscope.analysis.series import HOST
from leakscope.model.trend import Reason, Trend

_PARTS = {"parameters", "buffers", "gradients", "optimizer_state", "code"}
RISING = frozenset({Reason.SHORT_RISE, Reason.SETTLING, Reason.SHORT_REST})
"""Why a series that rose may or may not go on."""


@dataclass(frozen=True)
class Undecided:
    """A path that may leak."""

    path: int
    """Its place in the table of rows."""
    name: str
    bytes: int
    """What it gained."""
    more_boundaries: float | None
    """How many more would decide; None where nobody knows."""


def find_undecided(case: Case, growth: Growth) -> list[Undecided]:
    """Return the paths of the user's that may leak, outermost, the largest first."""
    table = case.table
    judged = {g.path for g in (*growth.growers, *growth.filling)}
    kin = judged | {above for path in judged for above in table.ancestors(path)}
    found: dict[int, Undecided] = {}
    waiting = [path for path, trend in growth.trends.items() if may_leak(case, path, trend)]
    for path in sorted(waiting, key=lambda p: (len(table.ancestors(p)), p)):
        above = table.ancestors(path)
        if path in kin or not found.keys().isdisjoint(above) or not judged.isdisjoint(above):
            continue
        trend = growth.trends[path]
        found[path] = Undecided(
            path, table.latest[path].name, int(trend.net_bytes), trend.more_work
        )
    return sorted(found.values(), key=lambda one: -one.bytes)


def may_leak(case: Case, path: int, trend: Trend | None) -> bool:
    """Return whether a path of the user's rises by much, and nobody can say whether it goes on."""
    row = case.table.latest[path]
    if trend is None or trend.reason not in RISING or not row.user or row.role in _PARTS:
        return False
    _, highest = case.table.highest(path, HOST)
    return trend.net_bytes >= policy.UNDECIDED_BYTES and highest >= policy.UNDECIDED_BYTES
