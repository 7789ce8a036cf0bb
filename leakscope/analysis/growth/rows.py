"""Rows of the census that grow: across phases (retained growth) or within one (phase peak).

Across: the same boundary of the same phase is higher each time. Within: it climbs from batch to
batch and falls back when the phase ends; no leak from epoch to epoch, and yet what sets the peak.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import numpy as np

from leakscope.analysis.columns.series import (
    HOST,
    INNER,
    BoolArray,
    BoundaryTable,
    FloatArray,
    IntArray,
    RowTable,
    code_of,
)
from leakscope.analysis.columns.units import Places, is_training, unit_of_growth, unit_within
from leakscope.analysis.growth import judge, judge_growth, kept_in_tail, policy, theil_sen
from leakscope.model.boundary import BoundaryKind
from leakscope.model.census import CensusRow, RootKind
from leakscope.model.trend import Reason, Trend, TrendVerdict


@dataclass(frozen=True)
class Grower:
    """One path that grows on one device."""

    path: int
    """Its place in the table of rows."""
    device: str
    growth: str
    """``across`` or ``within``."""
    unit: str
    phase: str
    trend: Trend
    """Rate and verdict, per unit."""
    gained: float
    """Bytes gained: over the recording (across) or at the height of the phase (within)."""
    units: float
    """Units of work in the whole recording (across) or from first to last census (within)."""
    columns: IntArray
    """The censuses that tell what is kept, in the stretch that its rate is of."""
    x: FloatArray
    """Units done at those censuses."""
    y: FloatArray
    observed: IntArray
    """All censuses at which it could be seen."""
    per_boundary: float = 0.0
    """Across: bytes per boundary of the recording, whatever the unit."""
    spread: float = 0.0
    """Part of the growth that comes from there being more such objects, not larger ones."""
    items_per_unit: float | None = None
    repeats: int = 1
    """Occurrences of the phase in which growth within was seen."""
    falls_back: bool = True
    """Within: whether it was seen to be released; a single passage may last to the end."""
    contents_factor: float = 1.0
    """Bytes that its rate counts for each that censuses saw: native memory that its items keep."""


class Observations:
    """What each path retained at the censuses that would have shown it."""

    def __init__(self, track: BoundaryTable, table: RowTable) -> None:
        self.track, self.table = track, table

    def columns(self, path: int) -> IntArray:
        """Return the censuses at which a path could be seen while the program was at work.

        What a running function holds can be seen from its first call on. When it has returned for
        good nobody knows what became of it, and nothing was released; where it is called again
        later it had let go of everything in between. What is there when the work has ended was
        kept; what is not was dropped because functions returned, unless what it is in kept all
        that it had.
        """
        table = self.table
        shown = table.covered(path)
        working = shown & (table.at <= self.track.last_work)
        alive = np.flatnonzero(table.alive(path) & working)
        if not len(alive):
            return alive
        within = np.arange(len(shown))
        seen = np.flatnonzero(working & (within >= alive[0]) & (within <= alive[-1]))
        if alive[-1] < np.flatnonzero(working)[-1]:
            return seen
        later = np.flatnonzero(shown & (table.at > self.track.last_work))
        retained = self._retained(path)
        was_kept = retained[later] >= max(retained[seen[-1]], 1.0)
        if above := table.ancestors(path):
            around = self._retained(above[-1])
            was_kept |= (retained[later] > 0) & (around[later] >= max(around[seen[-1]], 1.0))
        return np.append(seen, later[was_kept])

    def _retained(self, path: int) -> FloatArray:
        total = np.zeros(len(self.table.at))
        for retained in self.table.retained.values():
            total += np.nan_to_num(retained[path])
        return total

    def series(self, path: int, device: str) -> tuple[IntArray, FloatArray, float]:
        """Return censuses, what a path retained there, and by how much that may be wrong.

        A path without a row is smaller than what a census leaves out.
        """
        columns = self.columns(path)
        values = self.table.retained[device][path, columns]
        unseen = ~np.isfinite(values)
        least = max((self.table.censuses[c].cutoff_bytes for c in columns[unseen]), default=0)
        return columns, np.nan_to_num(values), max(policy.ROW_NOISE_BYTES, float(least))

    def judge(self, path: int, device: str) -> tuple[Trend, IntArray, FloatArray, BoolArray]:
        """Return how a path grows over boundaries, with the readings that this was judged by, and
        which of them are kept in its tail.

        What rises and falls, and was released once more as the work ended, is judged with that: the
        last rise was one of many.
        """
        columns, y, noise = self.series(path, device)
        trend = judge(self.work(columns), y, unit="boundary", noise=noise)
        was_released = (y < (1 - policy.MOST_SHARE) * np.maximum.accumulate(y)).any()
        if trend.reason is Reason.SHORT_REST and self._goes_on_by_step(columns, y, noise):
            trend = msgspec.structs.replace(
                trend, verdict=TrendVerdict.GROWING, reason=Reason.STEADY
            )
        elif trend.reason is Reason.SCATTERED and was_released:
            shown = self.table.covered(path) & self.table.alive(path)
            later = np.flatnonzero(shown & (np.arange(len(shown)) > columns[-1]))
            ended = np.append(columns, later)
            with_end = np.append(y, np.nan_to_num(self.table.retained[device][path, later]))
            judged = judge(self.work(ended), with_end, unit="boundary", noise=noise)
            if judged.is_bounded:
                trend, columns, y = judged, ended, with_end
        return trend, columns, y, kept_in_tail(self.work(columns), y, noise, trend)

    def _goes_on_by_step(self, columns: IntArray, y: FloatArray, noise: float) -> bool:
        """Return whether a path that rests at the end grows with each step to the last: phases and
        marks without steps in them are no work in which it might have grown.
        """
        steps = self.track.step[self.table.at[columns]].astype(np.float64)
        return bool(steps.any()) and judge_growth(steps, y, noise=noise).is_growing

    def work(self, columns: IntArray) -> FloatArray:
        """Return the index of the boundary up to which the program had worked at some censuses.

        What came after its last step ended with the boundary that follows.
        """
        at = np.minimum(self.table.at[columns], self.track.last_work + 1)
        return self.track.work[at].astype(np.float64)


def find_across(
    observations: Observations,
) -> tuple[dict[tuple[int, str], Grower], dict[int, Trend]]:
    """Return the paths that grow across phases, and the trends of all that were large enough.

    Trends and gains are per boundary here; :func:`in_units` puts them in the leak's own unit.
    """
    table = observations.table
    growers: dict[tuple[int, str], Grower] = {}
    trends: dict[int, Trend] = {}
    for device in table.retained:
        for path in _varying(table, device):
            trend, columns, y, kept = observations.judge(path, device)
            if trend.is_growing and _is_replaced_unread(observations, path, columns):
                trend = _with_short_rise(trend)
            if device == HOST or path not in trends:
                trends[path] = trend
            if not trend.is_growing:
                continue
            if _in_single_passage(observations, columns, y, kept):
                if device == HOST:  # nobody has seen yet whether the next one adds to it
                    trends[path] = _with_short_rise(trend)
                continue
            growers[path, device] = grower_of(
                observations, path, device, trend, columns, columns[kept]
            )
    for path, device in [*growers]:
        above = table.number.get(table.paths[path].removesuffix("[*]"), path)
        if above != path and above in trends and (above, device) not in growers:
            # All that its items keep it keeps, too; of the items a census may have shown a part.
            del growers[path, device]
            whole = trends[above]
            trends[path] = msgspec.structs.replace(
                trends[path], verdict=whole.verdict, reason=whole.reason
            )
    return growers, trends


def _with_short_rise(trend: Trend) -> Trend:
    return msgspec.structs.replace(
        trend, verdict=TrendVerdict.INCONCLUSIVE, reason=Reason.SHORT_RISE
    )


FIXED_SIZE_KINDS = frozenset({"tensor", "array", "bytes", "str"})
"""Kinds of objects that don't grow: what is larger at the same name is another one."""


def _is_replaced_unread(observations: Observations, path: int, columns: IntArray) -> bool:
    """Return whether a path had ever larger objects while it was seen, and no more of them, and its
    phase went on for longer than that: a variable of a function that is called in each step.
    """
    track, table = observations.track, observations.table
    at, count = table.at[columns], table.count[path, columns]
    last = int(at[-1])
    is_replaced = table.latest[path].kind in FIXED_SIZE_KINDS
    if not is_replaced or last > track.last_work or np.unique(count[np.isfinite(count)]).size > 1:
        return False
    same = (track.phase == track.phase[last]) & (track.occurrence == track.occurrence[last])
    end = min(int(np.flatnonzero(same)[-1]), track.last_work)
    seen, unread = track.work[last] - track.work[at[0]], track.work[end] - track.work[last]
    return bool(unread > seen)


def _in_single_passage(
    observations: Observations, columns: IntArray, y: FloatArray, kept: BoolArray
) -> bool:
    """Return whether a path rose in one passage through a phase alone: that is growth within it.

    The whole of a training may be one passage, or the whole of a run: there it must have been as
    high in an earlier passage, and have been released.
    """
    track, at = observations.track, observations.table.at[columns]
    looked_at = at
    at, rises = at[kept], np.diff(y[kept])
    ends = at[1:][rises > policy.STEP_SHARE * max(float(rises.sum()), 1.0)]
    phases, passes = track.phase[ends], track.occurrence[ends]
    if not len(ends) or not phases[0] or (phases != phases[0]).any():
        return False
    if len(track.phases) < 2 or (passes != passes[0]).any():
        return False
    if not is_training(track.phases[int(phases[0]) - 1]):
        return True
    earlier = (track.phase[looked_at] == phases[0]) & (track.occurrence[looked_at] < passes[0])
    return bool(y[earlier].max(initial=0.0) >= policy.JUMP_SHARE * y[kept][-1])


def _varying(table: RowTable, device: str) -> list[int]:
    values = table.retained[device]
    if values.size == 0:
        return []
    known = np.where(np.isfinite(values), values, 0.0)
    garbage = np.array([row.root.value in {"garbage", "native"} for row in table.latest])
    return np.flatnonzero((np.ptp(known, axis=1) > policy.ROW_NOISE_BYTES) & ~garbage).tolist()


def bytes_when_full(row: CensusRow, size: float) -> float | None:
    """Return what a container of ``size`` bytes that declares a bound comes to there; None where it
    declares none.
    """
    if row.capacity is None or not row.length:
        return None
    return float(size / row.length * row.capacity * max(row.count, 1))


def grower_of(
    observations: Observations,
    path: int,
    device: str,
    trend: Trend,
    observed: IntArray,
    columns: IntArray,
) -> Grower:
    """Return a path that grows, by the censuses (``columns``, of all ``observed`` at which it could
    be seen) that tell what is kept in the tail.
    """
    table, track = observations.table, observations.track
    x = track.work[table.at[columns]].astype(np.float64)
    y = np.nan_to_num(table.retained[device][path, columns])
    slope, units = theil_sen(x, y), float(x[-1] - x[0])
    trend = msgspec.structs.replace(
        trend,
        verdict=TrendVerdict.GROWING,
        bytes_per_unit=slope.rate,
        interval=(slope.low, slope.high),
        points=len(x),
        net_bytes=float(y[-1] - y[0]),
    )
    return Grower(
        path=path,
        device=device,
        growth="across",
        unit="boundary",
        phase="",
        trend=trend,
        gained=slope.rate * units,
        units=units,
        columns=columns,
        x=x,
        y=y,
        observed=observed,
        per_boundary=slope.rate,
        spread=spread_of(table.count[path, columns], y),
    )


def spread_of(count: FloatArray, y: FloatArray) -> float:
    """Return the part of a row's growth that comes from there being more objects of it.

    Small objects are counted once they are worth a row, and the newest may be the smallest: what a
    row gains while its objects become no more is theirs. A single object that goes on to gain is no
    more objects, though it had no row at first.
    """
    gained, counted = y[-1] - y[0], np.nan_to_num(count)
    more = counted[-1] - counted[0]
    single = y[counted == 1]
    goes_on = counted.max() == 1 and len(single) > 1 and single[-1] > single[0]
    if gained <= 0 or more <= 0 or goes_on:
        return 0.0
    evenly = more * y[-1] / max(counted[-1], 1.0)
    with_more = np.diff(y)[np.diff(counted) > 0].clip(min=0).sum()
    return float(min(evenly, with_more, gained) / gained)


def in_units(observations: Observations, places: Places, grower: Grower) -> Grower:
    """Return a grower with rate, gain and items in the unit of work that its growth belongs to."""
    track, table = observations.track, observations.table
    values = table.retained[grower.device][grower.path]
    unit = unit_of_growth(track, places, values, grower.columns, table.at, grower.gained)
    x = unit.done[table.at[grower.columns]]
    slope = theil_sen(x, grower.y)
    worked = float(x[-1] - x[0])
    trend = msgspec.structs.replace(
        grower.trend,
        bytes_per_unit=slope.rate if slope.rate > 0 else grower.gained / max(worked, 1.0),
        interval=(slope.low, slope.high),
        unit=unit.name,
        tail_from=float(x[0]),
        late_bytes_per_unit=None,
    )
    return replace(
        grower,
        unit=unit.name,
        phase=unit.phase,
        trend=trend,
        gained=trend.bytes_per_unit * worked,
        units=max(unit.total, worked),
        x=x,
        items_per_unit=items_per_unit(table, grower.path, grower.columns, x),
    )


def items_per_unit(table: RowTable, path: int, columns: IntArray, x: FloatArray) -> float | None:
    """Return how many items a container gains per unit, None where it has no length."""
    length = table.length[path, columns]
    known = np.isfinite(length)
    if known.sum() < 2 or np.ptp(x[known]) == 0:
        return None
    return theil_sen(x[known], length[known]).rate


@dataclass(frozen=True)
class Occurrence:
    """One passage through a phase: its censuses and those that follow until it begins again."""

    inside: IntArray
    """From the first batch to the end of the phase."""
    after: IntArray
    begin: int | None
    """The census at the very beginning."""

    def base(self, values: FloatArray) -> float:
        """Return what a path retained before the first batch: nothing, when it was not there."""
        return 0.0 if self.begin is None else float(np.nan_to_num(values[self.begin]))

    def rise(self, values: FloatArray) -> float:
        """Return how far a path climbed above its base."""
        return float(np.nan_to_num(values[self.inside]).max()) - self.base(values)

    def climb(self, values: FloatArray) -> IntArray:
        """Return the censuses inside, without the last where a path was emptied just before it."""
        if len(self.inside) < policy.FEWEST_READINGS:
            return self.inside
        last = float(np.nan_to_num(values[self.inside[-1]])) - self.base(values)
        return self.inside[:-1] if last <= policy.MOST_SHARE * self.rise(values) else self.inside

    def falls(self, values: FloatArray) -> bool | None:
        """Return whether the climb was released, None when no census shows it."""
        if len(self.climb(values)) < len(self.inside):
            return True
        if not len(self.after):
            return None
        left = float(np.nan_to_num(values[self.after]).min()) - self.base(values)
        return left <= policy.MOST_SHARE * self.rise(values)


@dataclass(frozen=True)
class Passages:
    """All passages through one phase that have censuses inside."""

    phase: str
    unit: str
    done: FloatArray
    """Units done in its passage at each census."""
    occurrences: list[Occurrence]
    begun: int
    outside: IntArray
    """The censuses between the passages, at their beginnings too."""

    def of(self, values: FloatArray) -> Passages:
        """Return the passages of which it is known what a path retained before the first batch.

        What is never there outside was nothing. Of other paths the first census of a passage shows
        it, and where no passage has one, the first census inside stands for it.
        """
        if not np.isfinite(values[self.outside]).any():
            return self
        known = [o for o in self.occurrences if o.begin is not None]
        if not known:
            several = [o for o in self.occurrences if len(o.inside) > 1]
            known = [replace(o, begin=int(o.inside[0]), inside=o.inside[1:]) for o in several]
        return replace(self, occurrences=known)


def passages(track: BoundaryTable, table: RowTable, phase: str) -> Passages:
    """Return the passages through a phase with the censuses of each."""
    mine = track.phase[table.at] == track.phase_code(phase)
    kind, number = track.kind[table.at], track.occurrence[table.at]
    inner = mine & np.isin(kind, (*INNER, code_of(BoundaryKind.PHASE_END)))
    begins = mine & (kind == code_of(BoundaryKind.PHASE_BEGIN))
    unit = unit_within(track, phase)
    done = unit.done[table.at].copy()
    found = []
    for occurrence in np.unique(number[inner]).tolist():
        inside = np.flatnonzero(inner & (number == occurrence))
        begin = np.flatnonzero(begins & (number == occurrence))
        passage = (track.phase == track.phase_code(phase)) & (track.occurrence == occurrence)
        done[inside] -= unit.done[passage][0]
        again = np.flatnonzero(mine[inside[-1] + 1 :]) + inside[-1] + 1
        end = len(table.at)
        if len(again):  # inside the next passage it may have climbed again
            end = int(again[0]) + int(begins[again[0]])
        after = np.arange(inside[-1] + 1, end)
        after = after[table.at[after] <= track.last_work]
        found.append(Occurrence(inside, after, int(begin[0]) if len(begin) else None))
    outside = np.flatnonzero(~inner)
    return Passages(phase, unit.name, done, found, track.begun(phase), outside)


def find_within(track: BoundaryTable, table: RowTable, device: str) -> dict[str, dict[int, Grower]]:
    """Return the paths that climb through each phase and fall back, by phase."""
    found = {}
    for phase in track.phases:
        through = passages(track, table, phase)
        climbing = {
            path: grower
            for path in _candidates(table, through, device)
            if (grower := _climb(table, through, path, device)) is not None
        }
        if climbing:
            found[phase] = climbing
    return found


def _candidates(table: RowTable, through: Passages, device: str) -> list[int]:
    """Return the paths that are higher inside enough passages than before them."""
    values = np.nan_to_num(table.retained[device])
    varies = np.zeros(len(table.paths), dtype=np.int64)
    for o in through.occurrences:
        base = values[:, o.begin] if o.begin is not None else 0.0
        varies += values[:, o.inside].max(axis=1) - base > policy.ROW_NOISE_BYTES
    seen = np.array([row.user or _is_of_a_call(row) for row in table.latest], dtype=bool)
    enough = 1 if through.begun == 1 else 2
    return np.flatnonzero(seen & (varies >= enough)).tolist()


def _is_of_a_call(row: CensusRow) -> bool:
    """Return whether a running function of a library holds it, which every census looks into."""
    return row.root is RootKind.LIBRARY and row.owner is not None and row.owner.kind == "function"


def _climb(table: RowTable, through: Passages, path: int, device: str) -> Grower | None:
    """Return a path's growth within a phase, None when it has none.

    The points of all passages are laid over each other, each above its own base: what climbs in
    every passage alike gives one line over the batches.
    """
    values = table.retained[device][path]
    through = through.of(values)
    if not through.occurrences:
        return None
    columns, x, level = _overlaid(through, values)
    # Before the first batch there is nothing above the base: in a short run, where there are few
    # censuses inside, that reading tells a climb from a jump.
    is_seen = any(o.begin is not None for o in through.occurrences) and np.all(x > 0)
    base = np.zeros(int(is_seen))
    merged = _merged(np.append(base, x), np.append(base, level))
    trend = judge(*merged, unit=through.unit, noise=policy.ROW_NOISE_BYTES)
    if not trend.is_growing or not _repeats(through, values, len(x)):
        return None
    slope = theil_sen(x, level)
    climbed = [o for o in through.occurrences if o.rise(values) > policy.ROW_NOISE_BYTES]
    rise = max(o.rise(values) for o in climbed)
    falls = any(o.falls(values) is not None for o in climbed)
    return Grower(
        path=path,
        device=device,
        growth="within",
        unit=through.unit,
        phase=through.phase,
        trend=msgspec.structs.replace(
            trend,
            bytes_per_unit=slope.rate,
            interval=(slope.low, slope.high),
            points=len(x),
            net_bytes=rise,
        ),
        gained=rise,
        units=float(x[-1] - x[0]),
        columns=columns,
        x=x,
        y=values[columns],
        observed=columns,
        spread=spread_of(table.count[path, columns], values[columns]),
        items_per_unit=items_per_unit(table, path, columns, x),
        repeats=len(climbed),
        falls_back=falls,
    )


def _overlaid(through: Passages, values: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return censuses inside all passages by units done in their passage, and bytes above base."""
    climbs = [o.climb(values) for o in through.occurrences]
    inside = np.concatenate(climbs)
    base = np.repeat([o.base(values) for o in through.occurrences], [*map(len, climbs)])
    present = np.isfinite(values[inside])
    inside, base = inside[present], base[present]
    order = np.argsort(through.done[inside], kind="stable")
    columns = inside[order]
    return columns, through.done[columns], values[columns] - base[order]


def _merged(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the series with the median of y for each x."""
    distinct = np.unique(x)
    return distinct, np.array([np.median(y[x == value]) for value in distinct], dtype=np.float64)


def _repeats(through: Passages, values: FloatArray, points: int) -> bool:
    """Return whether it climbed and fell back often enough to be the phase's own doing."""
    climbed = [o for o in through.occurrences if o.rise(values) > policy.ROW_NOISE_BYTES]
    fates = [fate for o in climbed if (fate := o.falls(values)) is not None]
    if through.begun == 1:
        seen = bool(fates) or not is_training(through.phase)
        return seen and points >= policy.FEWEST_GROWING and all(fates)
    against = [o for o in through.occurrences if o.rise(values) <= policy.ROW_NOISE_BYTES]
    emptied = [o for o in climbed if len(o.climb(values)) < len(o.inside)]
    if 2 * len(emptied) > len(climbed):  # then a census at the end alone says nothing
        against = [o for o in against if len(o.inside) > 1]
    often = len(climbed) >= max(2, 2 * len(against))
    return often and sum(fates) >= max(1, policy.MAIN_SHARE * len(fates))
