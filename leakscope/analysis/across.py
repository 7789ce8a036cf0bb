"""Growth across phases: the same boundary of the same phase is higher each time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import msgspec
import numpy as np

from leakscope.analysis.given_back import given_back
from leakscope.analysis.growers import ROW_NOISE_BYTES, Grower
from leakscope.analysis.series import (
    HOST,
    INNER,
    BoolArray,
    FloatArray,
    IntArray,
    RowTable,
    Track,
)
from leakscope.analysis.standstill import stood_still
from leakscope.analysis.trends import (
    FEWEST_POINTS,
    is_growth,
    judge,
    steady_from,
    theil_sen,
    without_jump,
)
from leakscope.analysis.units import Places, is_training, unit_of_growth, work_of
from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key
from leakscope.model.trend import Trend, TrendVerdict

MOVED = 0.7
"""A path that gains what another loses at the same time has not grown: its objects have moved."""

STOPPED = "stopped growing after the last census: memory in use stood still"


class Comparables:
    """Groups of censuses at which memory should be the same each time."""

    def __init__(self, track: Track, table: RowTable) -> None:
        self.track, self.table = track, table
        strict: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        pooled: dict[str, list[int]] = defaultdict(list)
        before: Boundary | None = None
        for column, position in enumerate(table.at):
            boundary = track.boundaries[position]
            phase, once = boundary.phase, track.begun(boundary.phase) <= 1
            if phase and (not once or is_training(phase)) and not _at_once(before, boundary):
                pooled[phase].append(column)
            before = boundary
            if track.kind[position] not in INNER or (once and is_training(phase)):
                strict[comparable_key(boundary)].append(column)
        self.strict = [np.array(c) for c in sorted(strict.values(), key=len, reverse=True)]
        self.pooled = [np.array(c) for c in sorted(pooled.values(), key=len, reverse=True)]
        self._work = {phase: work_of(track, phase) for phase in pooled}

    @property
    def most(self) -> int:
        """The most comparable censuses of one kind."""
        return max((len(c) for c in self.strict), default=0)

    def series(self, path: int, device: str) -> tuple[IntArray, bool]:
        """Return the censuses to judge a path by, and whether they are alike.

        The boundary with most readings is taken; when none has four, all censuses of the phase in
        which the path moves are, for a leak carries on from one occurrence to the next.
        """
        values = self.table.retained[device][path]
        covered = self.table.covered(path)
        alike = self._longest(self.strict, values, covered)
        if len(alike) >= FEWEST_POINTS or not self.pooled:
            return alike, True
        moving = max(self.pooled, key=lambda g: len(np.unique(np.nan_to_num(values[g]))))
        return self._longest([moving], values, covered), False

    def counter(self, columns: IntArray, alike: bool) -> FloatArray:
        """Return what growth is judged over: boundaries between censuses that are alike, else the
        work of the one phase in which all of them lie, for what it feeds rests meanwhile.
        """
        at = self.table.at[columns]
        if alike or not len(at):
            return self.track.index[at].astype(np.float64)
        return self._work[self.track.boundaries[at[0]].phase][at]

    @staticmethod
    def _longest(groups: list[IntArray], values: FloatArray, covered: BoolArray) -> IntArray:
        """Return the group that shows the path most often, from its first appearance on."""
        best = np.zeros(0, dtype=np.int64)
        for group in groups:
            if len(group) <= len(best):
                break
            seen = group[covered[group]]
            present = np.flatnonzero(np.isfinite(values[seen]))
            if len(present) and len(seen) - present[0] > len(best):
                best = seen[present[0] :]
        return best


def _at_once(before: Boundary | None, boundary: Boundary) -> bool:
    """Return whether a phase begins where it has just ended: a second look at the same moment."""
    return (
        before is not None
        and before.index == boundary.index - 1
        and before.phase == boundary.phase
        and (before.kind, boundary.kind) == (BoundaryKind.PHASE_END, BoundaryKind.PHASE_BEGIN)
    )


def judge_across(comparables: Comparables, path: int, device: str) -> tuple[Trend, IntArray]:
    """Return the trend of a path over boundaries, and the censuses it was judged by."""
    columns, alike = comparables.series(path, device)
    table = comparables.table
    y = np.nan_to_num(table.retained[device][path, columns])
    x = comparables.counter(columns, alike)
    trend = judge(x, y, unit="boundary", noise_bytes=ROW_NOISE_BYTES)
    trend = _per_boundary(trend, x, comparables.counter(columns, alike=True))
    if alike or is_growth(trend.verdict):
        return trend, columns
    return _left_open(trend), columns


def _left_open(trend: Trend) -> Trend:
    return msgspec.structs.replace(trend, verdict=TrendVerdict.INCONCLUSIVE)


def _per_boundary(trend: Trend, work: FloatArray, index: FloatArray) -> Trend:
    """Return a trend over some work as one over the boundaries between the same censuses."""
    if trend.points == 0 or index[-1] <= index[0]:
        return trend
    share = float((work[-1] - work[0]) / (index[-1] - index[0]))
    low, high = trend.interval
    rate = trend.bytes_per_unit * share
    return msgspec.structs.replace(trend, bytes_per_unit=rate, interval=(low * share, high * share))


def find_across(comparables: Comparables) -> tuple[dict[tuple[int, str], Grower], dict[int, Trend]]:
    """Return the paths that grow across phases, and the trends of all that were large enough.

    Trends and gains are per boundary here; :func:`in_units` puts them in the leak's own unit.
    """
    table = comparables.table
    growers: dict[tuple[int, str], Grower] = {}
    trends: dict[int, Trend] = {}
    judged_by: dict[tuple[int, str], IntArray] = {}
    for device in table.retained:
        for path in _varying(table, device):
            trend, columns = judge_across(comparables, path, device)
            if device == HOST or path not in trends:
                trends[path] = trend
            if is_growth(trend.verdict):
                growers[path, device] = _grower(comparables, path, device, trend, columns)
                judged_by[path, device] = columns
    for path, device in given_back(comparables, growers, judged_by):
        freed = growers.pop((path, device))
        if trends[path] is freed.trend:
            trends[path] = _left_open(freed.trend)
    growers |= _seen_later(table, growers)
    return {k: g for k, g in growers.items() if not has_moved(table, g)}, trends


def _seen_later(
    table: RowTable, growers: dict[tuple[int, str], Grower]
) -> dict[tuple[int, str], Grower]:
    """Return what grows inside a grower, and was too small for a row when that was first seen.

    Alone it has too few readings for a verdict; together with those at which its owner was as good
    as empty it has as many as the owner.
    """
    found: dict[tuple[int, str], Grower] = {}
    children = table.children()
    waiting = list(growers.values())
    while waiting:
        above = waiting.pop()
        for path in children[above.path]:
            values = table.retained[above.device][path, above.columns]
            seen = np.flatnonzero(np.isfinite(values))
            if (path, above.device) in growers or not len(seen) or not seen[0]:
                continue
            y = np.nan_to_num(values)
            gained = float(y[-1])
            if gained < MOVED * above.gained or y[seen[0]] > 0.5 * gained or (np.diff(y) < 0).any():
                continue
            count = table.count[path, above.columns]
            spread = spread_of(count, y) if count[-1] > 1 else 0.0
            inner = replace(above, path=path, y=y, gained=min(gained, above.gained), spread=spread)
            found[path, above.device] = inner
            waiting.append(inner)
    return found


def _varying(table: RowTable, device: str) -> list[int]:
    values = table.retained[device]
    if values.size == 0:
        return []
    known = np.where(np.isfinite(values), values, 0.0)
    garbage = np.array([row.root.value in {"garbage", "native"} for row in table.latest])
    return np.flatnonzero((np.ptp(known, axis=1) > ROW_NOISE_BYTES) & ~garbage).tolist()


def _grower(
    comparables: Comparables, path: int, device: str, trend: Trend, columns: IntArray
) -> Grower:
    table, track = comparables.table, comparables.track
    y = np.nan_to_num(table.retained[device][path, columns])
    x = track.index[table.at[columns]].astype(np.float64)
    begin = steady_from(y, x)
    columns, x, y = columns[begin:], x[begin:], y[begin:]
    units = float(x[-1] - x[0])
    gained = max(trend.bytes_per_unit * units, 0.0) or max(trend.net_bytes, 0.0)
    return Grower(
        path=path,
        device=device,
        growth="across",
        unit="boundary",
        phase="",
        trend=trend,
        gained=gained,
        units=units,
        columns=columns,
        x=x,
        y=y,
        per_boundary=gained / max(units, 1.0),
        spread=spread_of(table.count[path, columns], y),
    )


def spread_of(count: FloatArray, y: FloatArray) -> float:
    """Return the part of a row's growth that comes from there being more objects of it.

    Small objects are counted once they are worth a row, and the newest may be the smallest: what a
    row gains while its objects become no more is theirs.
    """
    gained, counted = y[-1] - y[0], np.nan_to_num(count)
    more = counted[-1] - counted[0]
    if gained <= 0 or more <= 0:
        return 0.0
    evenly = more * y[-1] / max(counted[-1], 1.0)
    with_more = np.diff(y)[np.diff(counted) > 0].clip(min=0).sum()
    return float(min(evenly, with_more, gained) / gained)


def has_moved(table: RowTable, grower: Grower) -> bool:
    """Return whether another path lost what this one gained: an alias that came or went."""
    values = np.nan_to_num(table.retained[grower.device][:, grower.columns])
    gains = np.diff(grower.y)
    rise = gains[gains > 0].sum()
    lost = values[:, 0] - values[:, -1] >= MOVED * (grower.y[-1] - grower.y[0])
    suspects = np.flatnonzero(lost)
    if not len(suspects) or rise <= 0:
        return False
    shared = np.minimum(-np.diff(values[suspects], axis=1), gains).clip(min=0).sum(axis=1)
    kin = {*table.ancestors(grower.path), grower.path}

    def gave(suspect: int) -> bool:
        """Return whether what it lost has left all that holds it, too."""
        above = table.ancestors(suspect)
        return suspect not in kin and grower.path not in above and lost[[*{*above} - kin]].all()

    return any(
        share >= MOVED * rise and gave(suspect)
        for suspect, share in zip(suspects.tolist(), shared, strict=True)
    )


def in_units(comparables: Comparables, places: Places, grower: Grower) -> Grower:
    """Return a grower with rate, gain and items in the unit of work that its growth belongs to.

    Its trend is bounded where memory stood still after the last census that showed it.
    """
    track, table = comparables.track, comparables.table
    values = table.retained[grower.device][grower.path]
    gained = grower.gained
    unit = unit_of_growth(track, places, values, grower.columns, table.at, gained)
    x = unit.done[table.at[grower.columns]]
    told_by = _up_to_the_end(table, grower, unit.done)
    work = unit.done[table.at[told_by]]
    slope = theil_sen(work, without_jump(np.nan_to_num(values[told_by]), work))
    trend = Trend(
        verdict=grower.trend.verdict,
        bytes_per_unit=slope.rate if slope.rate > 0 else gained / max(x[-1] - x[0], 1.0),
        interval=(slope.low, slope.high),
        unit=unit.name,
        points=grower.trend.points,
        net_bytes=grower.trend.net_bytes,
        reason=grower.trend.reason,
    )
    per_boundary = grower.per_boundary
    if told_by is not grower.columns:
        index = track.index[table.at[told_by]].astype(np.float64)
        per_boundary = _per_boundary(trend, work, index).bytes_per_unit
    counted = replace(
        grower,
        unit=unit.name,
        phase=unit.phase,
        trend=trend,
        gained=trend.bytes_per_unit * float(x[-1] - x[0]),
        units=max(unit.total, float(x[-1] - x[0])),
        x=x,
        per_boundary=per_boundary,
        items_per_unit=items_per_unit(table, grower.path, told_by, work),
    )
    if not stood_still(track, table, counted, unit.done):
        return counted
    ended = msgspec.structs.replace(trend, verdict=TrendVerdict.BOUNDED, reason=STOPPED)
    return replace(counted, trend=ended)


def _up_to_the_end(table: RowTable, grower: Grower, done: FloatArray) -> IntArray:
    """Return the censuses that tell a rate: with the last one of all, for growth in steps.

    It need not be alike, but of few steps it tells how many came since the last that is.
    """
    columns = grower.columns
    if grower.trend.verdict is not TrendVerdict.STEPWISE:
        return columns
    values = table.retained[grower.device][grower.path]
    last = int(np.flatnonzero(table.covered(grower.path))[-1])
    has_worked = done[table.at[last]] > done[table.at[columns[-1]]]
    return (
        np.append(columns, last) if has_worked and values[last] >= values[columns[-1]] else columns
    )


def items_per_unit(table: RowTable, path: int, columns: IntArray, x: FloatArray) -> float | None:
    """Return how many items a container gains per unit, None where it has no length."""
    length = table.length[path, columns]
    known = np.isfinite(length)
    if known.sum() < 2 or np.ptp(x[known]) == 0:
        return None
    return theil_sen(x[known], length[known]).rate
