"""Growth within a phase: it climbs from batch to batch and falls back when the phase ends.

No leak from epoch to epoch, and yet what kills many a run at the height of its validation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakscope.analysis.across import items_per_unit, spread_of
from leakscope.analysis.growers import ROW_NOISE_BYTES, Grower
from leakscope.analysis.series import INNER, FloatArray, IntArray, RowTable, Track, code_of
from leakscope.analysis.trends import (
    FEWEST_POINTS,
    Slope,
    is_growth,
    judge,
    pairwise,
    slope_of_pairs,
)
from leakscope.analysis.units import Unit, unit_within
from leakscope.model.boundary import BoundaryKind
from leakscope.model.trend import Trend, TrendVerdict

FALLEN = 0.5
"""What climbed in a phase has fallen back when less than this part of the climb is left."""
ALONE_POINTS = 5
"""So many points make one occurrence evidence, when the run has only one."""


@dataclass(frozen=True)
class Occurrence:
    """One passage through a phase: its censuses and those that follow until it begins again."""

    inside: IntArray
    """From the first batch to the end of the phase."""
    after: IntArray
    begin: int | None
    """The census at the very beginning."""


@dataclass(frozen=True)
class Passages:
    """All passages through one phase that have censuses inside."""

    phase: str
    unit: Unit
    occurrences: list[Occurrence]
    begun: int


def passages(track: Track, table: RowTable, phase: str) -> Passages:
    """Return the passages through a phase with the censuses of each."""
    code = track.phase_code(phase)
    mine = track.phase[table.at] == code
    kind, number = track.kind[table.at], track.occurrence[table.at]
    ended = code_of(BoundaryKind.PHASE_END)
    inner = mine & np.isin(kind, (*INNER, ended))
    begins = mine & (kind == code_of(BoundaryKind.PHASE_BEGIN))
    found = []
    for occurrence in np.unique(number[inner]).tolist():
        inside = np.flatnonzero(inner & (number == occurrence))
        begin = np.flatnonzero(begins & (number == occurrence))
        later = np.arange(inside[-1] + 1, len(table.at))
        again = later[mine[later]]
        until = again[0] + 1 if len(again) else len(table.at)
        after = np.arange(inside[-1] + 1, until)
        found.append(Occurrence(inside, after, int(begin[0]) if len(begin) else None))
    return Passages(phase, unit_within(track, phase), found, track.begun(phase))


def find_within(track: Track, table: RowTable, device: str) -> dict[str, dict[int, Grower]]:
    """Return by phase the paths that climb through it and fall back."""
    found = {}
    for phase in track.phases:
        through = passages(track, table, phase)
        climbing = {
            path: grower
            for path in _candidates(table, through, device)
            if (grower := _climb(track, table, through, path, device)) is not None
        }
        if climbing:
            found[phase] = climbing
    return found


def _candidates(table: RowTable, through: Passages, device: str) -> list[int]:
    """Return the paths that vary inside enough passages to be worth a look."""
    values = table.retained[device]
    varies = np.zeros(len(table.paths), dtype=np.int64)
    long = [o for o in through.occurrences if len(o.inside) >= 3]
    for occurrence in long:
        inside = np.nan_to_num(values[:, occurrence.inside])
        varies += np.ptp(inside, axis=1) > ROW_NOISE_BYTES
    user = np.array([row.user for row in table.latest], dtype=bool)
    enough = 1 if through.begun == 1 else 2
    return np.flatnonzero(user & (varies >= enough)).tolist()


def _climb(
    track: Track, table: RowTable, through: Passages, path: int, device: str
) -> Grower | None:
    """Return a path's growth within a phase, None when it has none."""
    values = table.retained[device][path]
    done = through.unit.done[table.at]
    long = [o for o in through.occurrences if len(o.inside) >= 3]
    climbs = [o for o in long if _climbs(done[o.inside], values[o.inside])]
    if len(climbs) * 3 < len(long) * 2 or not _repeats(through, climbs, values):
        return None
    slope = _pooled_rate(climbs, done, values)
    rise = max(_rise(o, values) for o in climbs)
    best = max(climbs, key=lambda o: _rise(o, values))
    inside = best.inside[np.isfinite(values[best.inside])]
    y = values[inside]
    trend = Trend(
        verdict=TrendVerdict.GROWING,
        bytes_per_unit=slope.rate,
        interval=(slope.low, slope.high),
        unit=through.unit.name,
        points=int(sum(np.isfinite(values[o.inside]).sum() for o in climbs)),
        net_bytes=rise,
        reason=f"climbs in {len(climbs)} of {len(long)} passages and falls back",
    )
    return Grower(
        path=path,
        device=device,
        growth="within",
        unit=through.unit.name,
        phase=through.phase,
        trend=trend,
        gained=rise,
        units=float(done[inside[-1]] - done[inside[0]]),
        columns=inside,
        x=done[inside],
        y=y,
        spread=spread_of(table.count[path, inside], y),
        items_per_unit=items_per_unit(table, path, inside, done[inside]),
        repeats=len(climbs),
    )


def _climbs(x: FloatArray, y: FloatArray) -> bool:
    """Return whether a path climbs steadily through one passage."""
    present = np.isfinite(y)
    x, y = x[present], y[present]
    if len(y) >= FEWEST_POINTS:
        return is_growth(judge(x, y, unit="", noise_bytes=ROW_NOISE_BYTES, warm=True).verdict)
    rises = np.diff(y)
    return len(y) == 3 and bool((rises > ROW_NOISE_BYTES).all()) and rises.max() < 3 * rises.min()


def _repeats(through: Passages, climbs: list[Occurrence], values: FloatArray) -> bool:
    """Return whether it climbed and fell back often enough to be the phase's own doing."""
    if not climbs:
        return False
    fates = [fate for o in climbs if (fate := _falls(o, values)) is not None]
    if through.begun == 1:
        points = int(np.isfinite(values[climbs[0].inside]).sum())
        return points >= ALONE_POINTS and all(fates)
    return len(climbs) >= 2 and sum(fates) >= max(1, 0.7 * len(fates))


def _falls(occurrence: Occurrence, values: FloatArray) -> bool | None:
    """Return whether the climb of a passage was given back, None when nothing shows it."""
    if not len(occurrence.after):
        return None
    left = float(np.nan_to_num(values[occurrence.after]).min())
    return left - _base(occurrence, values) <= FALLEN * _rise(occurrence, values)


def _base(occurrence: Occurrence, values: FloatArray) -> float:
    """Return what the path retained before the climb: nothing, when it was not there."""
    if occurrence.begin is None:
        return 0.0
    return float(np.nan_to_num(values[occurrence.begin]))


def _rise(occurrence: Occurrence, values: FloatArray) -> float:
    return float(np.nan_to_num(values[occurrence.inside]).max()) - _base(occurrence, values)


def _pooled_rate(climbs: list[Occurrence], done: FloatArray, values: FloatArray) -> Slope:
    """Return the median slope over the pairs of each passage: their offsets fall away."""
    slopes = []
    for occurrence in climbs[:40]:
        present = occurrence.inside[np.isfinite(values[occurrence.inside])]
        found, _ = pairwise(done[present], values[present])
        slopes.append(found)
    pairs = np.concatenate(slopes)
    effective = max(int((1 + np.sqrt(1 + 8 * len(pairs))) / 2), 2)
    return slope_of_pairs(pairs, effective, ties_in=np.arange(effective, dtype=np.float64))
