"""Cleared and undecided: what looks like a leak and isn't, and what rises too shortly to tell."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from leakscope.analysis.columns.series import HOST, FloatArray, RowTable
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.exclusions import capacity_of
from leakscope.analysis.growth.rows import Grower
from leakscope.analysis.growth.search import SearchResult
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.verdict.culprits import signature
from leakscope.model import gauge
from leakscope.model.census import CensusRow
from leakscope.model.path_pattern import parse_steps
from leakscope.model.report import Cleared
from leakscope.model.text import human_bytes, human_count
from leakscope.model.trend import Reason, Trend, TrendVerdict

MOST_CLEARED = 15
_CLEARED_PARTS = {"parameters", "buffers", "gradients", "code"}
_HOLDERS = frozenset(
    {
        *("list", "dict", "set", "deque", "tuple", "lru_cache", "queue", "compiled"),
        *("tensor", "array", "bytes", "image"),
    }
)
_REASONS = {
    Reason.STEADY: "grows, by little",
    Reason.SLOWING: "grows, by little and ever less",
    Reason.UNCHANGED: "constant: no growth across boundaries",
    Reason.RELEASED: "rises and falls back: it is emptied again",
    Reason.STOPPED: "stopped growing",
    Reason.SETTLED: "levelled off",
    Reason.NO_TREND: "varies about a level",
    Reason.TOO_FEW: "comes and goes with its function",
    Reason.SHORT_RISE: "rose too short a time to tell",
    Reason.SHORT_REST: "paused at the end, as it had before",
    Reason.SETTLING: "levels off",
    Reason.SCATTERED: "varies by more than it grows",
}
_UNDECIDED_REASONS = frozenset(
    {Reason.SHORT_RISE, Reason.SETTLING, Reason.SHORT_REST, Reason.SCATTERED}
)
"""Why a series that rose may or may not go on."""


def find_cleared(
    case: RunContext, growth: SearchResult, undecided: list[Undecided]
) -> list[Cleared]:
    """Return what was looked at and is fine, the largest first."""
    accused = {g.path for g in growth.growers} | {row.path for row in undecided}
    kin = accused.union(*map(case.table.ancestors, accused))
    found = [_filling(case, g) for g in growth.filling]
    done, unsettled = {g.path for g in growth.filling}, set(accused)
    blamed = tuple(case.table.paths[path] + step for path in accused for step in ".[⟨(")
    for path in _noteworthy(case.table):
        settled = not (accused | done).isdisjoint(case.table.ancestors(path))
        if settled or path in kin | done or case.table.paths[path].startswith(blamed):
            continue
        done.add(path)
        trend = growth.trends.get(path)
        if may_leak(case, path, trend):
            unsettled.add(path)
        else:
            found.append(_cleared(case, path, trend))
    # A function that returns what it held gives it another path, and the same name.
    names = {case.table.latest[path].name for path in unsettled | kin}
    named = {c.name: c for c in sorted(found, key=lambda c: c.total_bytes) if c.name not in names}
    return sorted(named.values(), key=lambda c: -c.total_bytes)[:MOST_CLEARED]


def with_cleared(found: list[Cleared], others: list[Cleared]) -> list[Cleared]:
    """Return both, the largest first."""
    return sorted([*found, *others], key=lambda c: -c.total_bytes)


def _noteworthy(table: RowTable) -> list[int]:
    """Return large single containers and tensors, and all that declare a bound; outermost first."""
    if not table.paths:
        return []
    values = table.retained[HOST]
    highest = np.where(np.isfinite(values), values, 0.0).max(axis=1, initial=0.0)
    chosen = [
        path
        for path, row in enumerate(table.latest)
        if row.user
        and row.root.value != "garbage"
        and row.role not in _CLEARED_PARTS
        and row.kind in _HOLDERS
        and (highest[path] >= policy.GAUGE_NOISE_BYTES or row.capacity is not None)
    ]
    return sorted(chosen, key=lambda p: (len(table.ancestors(p)), -highest[p]))


def _filling(case: RunContext, g: Grower) -> Cleared:
    row = case.table.latest[g.path]
    capacity = capacity_of(row)
    bound = f"{human_count(capacity)} entries at most" if capacity else "by the model's size"
    entry = _entry(case, g.path, row, f"filling: bounded, {bound}", "bounded")
    return msgspec.structs.replace(entry, is_filling=True)


def _cleared(case: RunContext, path: int, trend: Trend | None) -> Cleared:
    row, retained = case.table.latest[path], case.table.retained[HOST][path]
    if row.capacity is not None and (row.length or 0) >= row.capacity > 0:
        since = _since(case, case.table.length[path])
        reason = f"bounded: {human_count(row.capacity)} entries{since}"
        return _entry(case, path, row, reason, "bounded")
    if trend is None:
        return _entry(case, path, row, "constant: as large at every boundary", "constant")
    if trend.reason in {Reason.STOPPED, Reason.SETTLED}:
        entries = "stopped growing" if row.length is None else f"{human_count(row.length)} entries"
        return _entry(case, path, row, f"bounded: {entries}{_since(case, retained)}", "bounded")
    kind = "constant" if trend.reason is Reason.UNCHANGED else "level"
    reason = "rose just before the end" if _began_late(trend) else _REASONS[trend.reason]
    known = retained[np.isfinite(retained)]
    only_rose = len(known) <= policy.FEW_READINGS and bool((np.diff(known) >= 0).all())
    if trend.reason is Reason.SCATTERED and only_rose:
        reason = f"rose, in {len(known)} looks: too few to tell"
    return _entry(case, path, row, reason, "open" if trend.is_open else kind)


def _since(case: RunContext, values: FloatArray) -> str:
    """Return since when a path has been as large as it is, if more than a look or two tell it."""
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return ""
    last = float(values[known[-1]])
    other = np.flatnonzero(np.abs(values[known] - last) > policy.STEP_SHARE * last)
    start = int(other[-1]) + 1 if len(other) else 0
    if len(known) - start < policy.FEWEST_READINGS:
        return ""
    where = case.table.at[known[start]]
    begun = float(case.track.time_s[where])
    if start == 0 and begun <= policy.LITTLE_SHARE * float(case.track.time_s[-1]):
        return " throughout"
    if start == 0:
        return f" from the first look on, in second {begun:.0f}"
    if case.recording.header.worker is not None:
        passes, batch = int(case.track.occurrence[where]), int(case.track.batch[where])
        return f" since pass {passes + 1}" if passes else f" since batch {batch}"
    epoch, step = int(case.track.epoch[where]), int(case.track.step[where])
    if not step:
        return f" since second {case.track.time_s[where]:.0f}"
    return f" since epoch {epoch + 1}" if epoch else f" since step {step}"


def _entry(case: RunContext, path: int, row: CensusRow, reason: str, kind: str) -> Cleared:
    _, total = case.table.highest(path, HOST)
    return Cleared(
        name=row.name,
        path=row.path,
        reason=f"{reason} ({human_bytes(total)})",
        kind=kind,
        total_bytes=int(total),
        signature=signature(row),
    )


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
    is_uneven: bool = False
    """Whether it rises and falls by more than it gains."""


def find_undecided(case: RunContext, growth: SearchResult) -> list[Undecided]:
    """Return paths that may leak, outermost, the largest first: what every census looks into."""
    table = case.table
    judged = {g.path for g in (*growth.growers, *growth.filling)} | growth.at_bound
    kin = judged.union(*map(table.ancestors, judged))
    found: dict[int, Undecided] = {}
    waiting = [path for path, trend in growth.trends.items() if may_leak(case, path, trend)]
    for path in sorted(waiting, key=lambda p: (len(table.ancestors(p)), p)):
        if path not in kin and (found.keys() | judged).isdisjoint(table.ancestors(path)):
            inner = _innermost(case, growth, path, waiting)
            found[path] = _undecided(case, inner, growth.trends[inner])
    return sorted(found.values(), key=lambda each: -each.bytes)


def _innermost(case: RunContext, growth: SearchResult, path: int, waiting: list[int]) -> int:
    """Return the container below a path that gained nearly all that the path did: its name says
    more than that of the object that has it.
    """
    least = policy.MAIN_SHARE * growth.trends[path].net_bytes
    length = len(case.table.paths[path])
    below = [
        other
        for other in waiting
        if path in case.table.ancestors(other)
        and case.table.latest[other].length is not None
        and growth.trends[other].net_bytes >= least
        and not any(step.is_item for step in parse_steps(case.table.paths[other][length:]))
    ]
    return max(below, key=lambda other: len(case.table.ancestors(other)), default=path)


def most_of_named(case: RunContext, growth: SearchResult, gained: float) -> Undecided | None:
    """Return the outermost undecided name of the user's that makes most of what names gained."""
    table, least = case.table, policy.MOST_SHARE * gained
    found = [
        _undecided(case, path, trend)
        for path, trend in growth.trends.items()
        if table.latest[path].user and trend.verdict is TrendVerdict.INCONCLUSIVE
    ]
    large = [each for each in found if each.bytes >= least]
    return min(large, key=lambda each: (len(table.ancestors(each.path)), -each.bytes), default=None)


def _undecided(case: RunContext, path: int, trend: Trend) -> Undecided:
    late = trend.net_bytes + trend.gained_before if _began_late(trend) else 0.0
    return Undecided(
        path,
        case.table.latest[path].name,
        int(max(trend.net_bytes, trend.gained_before, late)),
        trend.more_work,
        is_uneven=trend.reason is Reason.SCATTERED and not _began_late(trend),
    )


def may_leak(case: RunContext, path: int, trend: Trend | None) -> bool:
    """Return whether a path rises by much, and nobody can say whether it goes on."""
    row = case.table.latest[path]
    if (
        trend is None
        or trend.reason not in _UNDECIDED_REASONS
        or not case.table.is_reached(path)
        or row.role in _CLEARED_PARTS | {"optimizer_state"}
    ):
        return False
    _, highest = case.table.highest(path, HOST)
    gained = trend.net_bytes
    if (trend.reason is Reason.SHORT_REST and _may_only_wait(case, path)) or _began_late(trend):
        gained += trend.gained_before
    least = 0.0
    if trend.reason is Reason.SCATTERED:
        # What ends near where it began has lost again what it gained in between.
        _, y, _ = case.observations.series(path, HOST)
        only_rose = bool((np.diff(y) >= -policy.ROW_NOISE_BYTES).all())
        if not only_rose and y[-1] <= y[:-1].max() + policy.ROW_NOISE_BYTES:
            return False  # it was as high before, and fell in between
        if not row.user:
            return False
        least = 0.0 if only_rose else policy.MOST_SHARE * highest
        if _gained_little(case, policy.MOST_SHARE * gained):
            return False
    little = policy.GAUGE_NOISE_BYTES if _is_the_growth(case, row, gained) else policy.LITTLE_BYTES
    return gained >= max(little, least) and highest >= policy.LITTLE_BYTES


def _is_the_growth(case: RunContext, row: CensusRow, gained: float) -> bool:
    """Return whether a name of the user's gained most of what memory did, which may go on."""
    _, private = case.pool_series()
    if not row.user or case.pool.is_bounded or not len(private):
        return False
    return gained >= policy.MOST_SHARE * float(private[-1] - private[0]) > 0


def _began_late(trend: Trend) -> bool:
    """Return whether a series rose only just before the end, through all that was read there: the
    tail has too few readings to be judged, and what came before it was no fall.
    """
    is_short = trend.reason is Reason.SCATTERED and trend.points < policy.FEWEST_READINGS
    whole = trend.net_bytes + trend.gained_before
    return is_short and trend.gained_before > 0 and trend.net_bytes >= policy.LITTLE_SHARE * whole


def _may_only_wait(case: RunContext, path: int) -> bool:
    """Return whether what rests may go on: in a child, whoever gives it work may be at its end, and
    where it made most of what memory goes on to gain, memory may show that it does.
    """
    if case.recording.header.child is not None:
        return True
    pool = case.pool
    columns, y, _ = case.observations.series(path, HOST)
    if not pool.is_growing or pool.net_bytes < policy.GAUGE_NOISE_BYTES or not len(columns):
        return False
    before = np.interp(pool.tail_from, case.work_done[case.table.at[columns]], y)
    return bool(y[-1] - before >= policy.MOST_SHARE * pool.net_bytes)


def _gained_little(case: RunContext, least: float) -> bool:
    """Return whether neither private memory nor what malloc hands out gained so much."""
    in_use = case.gauge_gain(gauge.MALLOC_IN_USE)
    gained = case.pool.net_bytes + case.pool.gained_before
    return case.pool.is_bounded and gained < least and in_use is not None and in_use < least
