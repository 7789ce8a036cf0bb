"""Whether what grew until the last census stood still after it, as far as the gauges tell.

In a short or a slow run the censuses are over long before its end, and a warm-up in their time
looks like a leak. Memory in use is read to the end: resident memory without what malloc holds free,
which would otherwise take up growth unseen. Where that wasn't read, as much may have been
free, and taken up, as ever was.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from leakscope.analysis.growers import Grower
from leakscope.analysis.series import HOST, FloatArray, RowTable, Track
from leakscope.analysis.trends import PLATEAU_SHARE
from leakscope.model import gauge
from leakscope.model.boundary import comparable_key

LEAST_DUE = float(512 << 10)
"""Less than this may come and go without any container."""
STOOD_STILL = 0.25
"""Memory that grew by less than this part of what a container would have gained alone."""


def stood_still(track: Track, table: RowTable, grower: Grower, done: FloatArray) -> bool:
    """Return whether it hardly grew in the last part of the run, which no like census looked at.

    A later census of another kind tells, such as that at the end of the run, or memory in use.

    Args:
        track: The recording.
        table: Its rows.
        grower: What grew across phases, with its rate.
        done: Units of work done at each measurement, in the grower's unit.

    """
    if _seen_at_rest(table, grower, done):
        return True
    if grower.device != HOST:
        return False
    begin, last = table.at[grower.columns[0]], table.at[grower.columns[-1]]
    resident, free = track.gauge(gauge.RSS), _free_at_most(track)
    known = np.isfinite(resident) & np.isfinite(free)
    alike: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for position in np.flatnonzero(known[: track.last_work + 1]):
        if position >= last:
            alike[comparable_key(track.boundaries[position])].append(int(position))
    for places in alike.values():
        end = places[-1]
        first = np.array(places[:-1], dtype=np.int64)
        units = done[end] - done[first]
        due = grower.trend.bytes_per_unit * units
        gained = resident[end] - resident[first] + free[first] - _free_at_least(track, end)
        is_long = units >= PLATEAU_SHARE * (done[end] - done[begin])
        if (is_long & (due >= LEAST_DUE) & (gained < STOOD_STILL * due)).any():
            return True
    return False


def _seen_at_rest(table: RowTable, grower: Grower, done: FloatArray) -> bool:
    """Return whether a later census, of whatever kind, shows the path about as large.

    One with as many more items as before isn't: what others hold too at that moment, as the loop's
    variables hold the newest of them at the end of a run, is not counted as its own.
    """
    values = table.retained[grower.device][grower.path]
    later = np.flatnonzero(table.covered(grower.path) & np.isfinite(values))
    if not len(later) or later[-1] <= grower.columns[-1]:
        return False
    first, last, end = table.at[grower.columns[0]], table.at[grower.columns[-1]], later[-1]
    units = done[table.at[end]] - done[last]
    gained = values[end] - values[grower.columns[-1]]
    is_long = units >= PLATEAU_SHARE * (done[last] - done[first])
    length = table.length[grower.path]
    added, due = length[end] - length[grower.columns[-1]], (grower.items_per_unit or 0.0) * units
    if due > 0 and added >= (1.0 - STOOD_STILL) * due:
        return False
    return bool(is_long and gained < STOOD_STILL * grower.trend.bytes_per_unit * units)


def _free_at_most(track: Track) -> FloatArray:
    """Return what malloc held free at each boundary, or where it wasn't read what it ever did."""
    free = track.gauge(gauge.MALLOC_FREE)
    known = np.isfinite(free)
    return np.where(known, free, free[known].max() if known.any() else np.nan)


def _free_at_least(track: Track, position: int) -> float:
    free = float(track.gauge(gauge.MALLOC_FREE)[position])
    return free if np.isfinite(free) else 0.0
