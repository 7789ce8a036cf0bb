"""Growth within a phase: it climbs from batch to batch and falls back when the phase ends.

No leak from epoch to epoch, and yet what kills many a run at the height of its validation.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from leakscope.analysis.across import items_per_unit, spread_of
from leakscope.analysis.growers import Grower
from leakscope.analysis.growth import judge, theil_sen
from leakscope.analysis.growth.policy import ROW_NOISE_BYTES
from leakscope.analysis.series import INNER, FloatArray, IntArray, RowTable, Track, code_of
from leakscope.analysis.units import is_training, unit_within
from leakscope.model.boundary import BoundaryKind
from leakscope.model.census import CensusRow, RootKind

FALLEN = 0.5
"""What climbed in a phase has fallen back when less than this part of the climb is left."""
FEWEST_TO_CLIMB = 3
"""Censuses inside a passage; of fewer the last may not be left out."""
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

    def base(self, values: FloatArray) -> float:
        """Return what a path retained before the first batch: nothing, when it was not there."""
        return 0.0 if self.begin is None else float(np.nan_to_num(values[self.begin]))

    def rise(self, values: FloatArray) -> float:
        """Return how far a path climbed above its base."""
        return float(np.nan_to_num(values[self.inside]).max()) - self.base(values)

    def climb(self, values: FloatArray) -> IntArray:
        """Return the censuses inside, without the last where a path was emptied just before it."""
        if len(self.inside) < FEWEST_TO_CLIMB:
            return self.inside
        last = float(np.nan_to_num(values[self.inside[-1]])) - self.base(values)
        return self.inside[:-1] if last <= FALLEN * self.rise(values) else self.inside

    def falls(self, values: FloatArray) -> bool | None:
        """Return whether the climb was given back, None when no census shows it."""
        if not len(self.after):
            return None
        left = float(np.nan_to_num(values[self.after]).min()) - self.base(values)
        return left <= FALLEN * self.rise(values)


@dataclass(frozen=True)
class Passages:
    """All passages through one phase that have censuses inside."""

    phase: str
    unit: str
    done: FloatArray
    """Units done in its passage at each census."""
    occurrences: list[Occurrence]
    begun: int


def passages(track: Track, table: RowTable, phase: str) -> Passages:
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
        later = np.arange(inside[-1] + 1, len(table.at))
        again = later[mine[later]]
        end = len(table.at)
        if len(again):  # inside the next passage it may have climbed anew
            end = int(again[0]) + int(begins[again[0]])
        after = np.arange(inside[-1] + 1, end)
        after = after[table.at[after] <= track.last_work]
        found.append(Occurrence(inside, after, int(begin[0]) if len(begin) else None))
    return Passages(phase, unit.name, done, found, track.begun(phase))


def find_within(track: Track, table: RowTable, device: str) -> dict[str, dict[int, Grower]]:
    """Return by phase the paths that climb through it and fall back."""
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
        varies += values[:, o.inside].max(axis=1) - base > ROW_NOISE_BYTES
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
    columns, x, level = _overlaid(through, values)
    trend = judge(*_from_base(through, x, level), unit=through.unit, noise=ROW_NOISE_BYTES)
    if not trend.is_growing or not _repeats(through, values, len(x)):
        return None
    slope = theil_sen(x, level)
    climbed = [o for o in through.occurrences if o.rise(values) > ROW_NOISE_BYTES]
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
        observed_x=x,
        spread=spread_of(table.count[path, columns], values[columns]),
        items_per_unit=items_per_unit(table, path, columns, x),
        repeats=len(climbed),
        falls_back=falls,
    )


def _overlaid(through: Passages, values: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return censuses inside all passages by units done in their passage, and bytes above base."""
    climbs = [o.climb(values) for o in through.occurrences]
    inside = np.concatenate(climbs)
    bases = [
        np.full(len(c), o.base(values)) for c, o in zip(climbs, through.occurrences, strict=True)
    ]
    base = np.concatenate(bases)
    present = np.isfinite(values[inside])
    inside, base = inside[present], base[present]
    order = np.argsort(through.done[inside], kind="stable")
    columns = inside[order]
    return columns, through.done[columns], values[columns] - base[order]


def _from_base(
    through: Passages, x: FloatArray, level: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the merged series, which begins at its base where a census shows that.

    Before the first batch there is nothing above the base: in a short run, where there are few
    censuses inside, that reading tells a climb from a jump.
    """
    if not any(o.begin is not None for o in through.occurrences) or not np.all(x > 0):
        return _merged(x, level)
    return _merged(np.append(0.0, x), np.append(0.0, level))


def _merged(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the series with the median of y for each x."""
    distinct = np.unique(x)
    return distinct, np.array([np.median(y[x == value]) for value in distinct], dtype=np.float64)


def _repeats(through: Passages, values: FloatArray, points: int) -> bool:
    """Return whether it climbed and fell back often enough to be the phase's own doing."""
    climbed = [o for o in through.occurrences if o.rise(values) > ROW_NOISE_BYTES]
    fates = [fate for o in climbed if (fate := o.falls(values)) is not None]
    if through.begun == 1:
        seen = bool(fates) or not is_training(through.phase)
        return seen and points >= ALONE_POINTS and all(fates)
    against = [o for o in through.occurrences if o.rise(values) <= ROW_NOISE_BYTES]
    emptied = [o for o in climbed if len(o.climb(values)) < len(o.inside)]
    if 2 * len(emptied) > len(climbed):  # then a census at the end alone says nothing
        against = [o for o in against if len(o.inside) > 1]
    often = len(climbed) >= max(2, 2 * len(against))
    return often and sum(fates) >= max(1, 0.7 * len(fates))
