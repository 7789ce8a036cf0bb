"""Growth across phases: what each path retains at every census at which it can be seen."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from leakscope.analysis.growers import Grower
from leakscope.analysis.growth import Growth, judge_growth, policy, theil_sen, trend_of
from leakscope.analysis.growth.policy import ROW_NOISE_BYTES
from leakscope.analysis.series import HOST, FloatArray, IntArray, RowTable, Track
from leakscope.analysis.units import Places, is_training, unit_of_growth
from leakscope.model.trend import Trend, TrendVerdict


class Observations:
    """What each path retained at the censuses that would have shown it."""

    def __init__(self, track: Track, table: RowTable) -> None:
        self.track, self.table = track, table

    def columns(self, path: int) -> IntArray:
        """Return the censuses at which a path could be seen while the program was at work.

        What a running function holds can be seen from its first call on. When it has returned for
        good nobody knows what became of it, and nothing was released; where it is called again
        later it had let go of everything in between. What is there when the work has ended was
        kept; what is not was dropped because functions returned.
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
        held = sum(np.nan_to_num(values[path]) for values in table.retained.values())
        return np.append(seen, later[held[later] >= max(held[seen[-1]], 1.0)])

    def series(self, path: int, device: str) -> tuple[IntArray, FloatArray, float]:
        """Return censuses, what a path retained there, and by how much that may be wrong.

        A path without a row is smaller than what a census leaves out.
        """
        columns = self.columns(path)
        values = self.table.retained[device][path, columns]
        unseen = ~np.isfinite(values)
        least = max((self.table.censuses[c].cutoff_bytes for c in columns[unseen]), default=0)
        return columns, np.nan_to_num(values), max(ROW_NOISE_BYTES, float(least))

    def judge(self, path: int, device: str) -> tuple[Growth, IntArray, FloatArray]:
        """Return how a path grows over boundaries, with the readings that this was judged by."""
        columns, y, noise = self.series(path, device)
        return judge_growth(self.work(columns), y, noise=noise), columns, y

    def work(self, columns: IntArray) -> FloatArray:
        """Return the index of the boundary up to which the program had worked at some censuses.

        What came after its last step ended with the boundary that follows.
        """
        at = np.minimum(self.table.at[columns], self.track.last_work + 1)
        return self.track.index[at].astype(np.float64)


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
            growth, columns, y = observations.judge(path, device)
            trend = trend_of(growth, "boundary")
            if device == HOST or path not in trends:
                trends[path] = trend
            if growth.is_growing and not _in_one_passage(observations, columns, y, growth):
                kept = columns[np.isin(observations.work(columns), growth.kept_at)]
                growers[path, device] = grower_of(observations, path, device, trend, columns, kept)
    return growers, trends


def _in_one_passage(
    observations: Observations, columns: IntArray, y: FloatArray, growth: Growth
) -> bool:
    """Return whether a path rose in one passage through a phase alone: that is growth within it.

    The whole of a training may be one passage, or the whole of a run: there it must have been as
    high in an earlier passage, and have been given back.
    """
    track, at = observations.track, observations.table.at[columns]
    looked_at = at
    kept = np.isin(observations.work(columns), growth.kept_at)
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
    return np.flatnonzero((np.ptp(known, axis=1) > ROW_NOISE_BYTES) & ~garbage).tolist()


def grower_of(
    observations: Observations,
    path: int,
    device: str,
    trend: Trend,
    observed: IntArray,
    columns: IntArray,
) -> Grower:
    """Return a path that grows, by the censuses that tell what is kept in the tail.

    Args:
        observations: What all paths retained.
        path: The path.
        device: On which it grows.
        trend: How it grows over boundaries.
        observed: All censuses at which it could be seen.
        columns: Those of them.

    """
    table, track = observations.table, observations.track
    x = track.index[table.at[columns]].astype(np.float64)
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
        observed_x=track.index[table.at[observed]].astype(np.float64),
        per_boundary=slope.rate,
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
        observed_x=unit.done[table.at[grower.observed]],
        items_per_unit=items_per_unit(table, grower.path, grower.columns, x),
    )


def items_per_unit(table: RowTable, path: int, columns: IntArray, x: FloatArray) -> float | None:
    """Return how many items a container gains per unit, None where it has no length."""
    length = table.length[path, columns]
    known = np.isfinite(length)
    if known.sum() < 2 or np.ptp(x[known]) == 0:
        return None
    return theil_sen(x[known], length[known]).rate
