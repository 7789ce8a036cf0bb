"""Growth that only walks of the whole heap see, where a run had few of them.

What no name of the user's reaches is seen at full censuses alone. Two or three of them can't tell
a leak from a warm-up; memory in use can, which is read at every comparable boundary: it must grow
all along, and at about the same rate.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.across import spread_of
from leakscope.analysis.case import Case
from leakscope.analysis.growers import ROW_NOISE_BYTES, Grower
from leakscope.analysis.series import HOST, FloatArray
from leakscope.analysis.trends import FEWEST_POINTS, goes_on, goes_on_evenly, is_growth, theil_sen
from leakscope.model import gauge
from leakscope.model.census import RootKind
from leakscope.model.trend import Trend

FOLLOWS = 0.5
MOST = 1.5
"""They must make up this part of the growth of memory, and no more than it."""
LONG_POINTS = 8
"""Readings of resident memory that a verdict takes, which moves for many reasons."""
IN_USE_POINTS = FEWEST_POINTS + 1
"""And of what the C heap has in use, which is exact."""


def followed(case: Case, x: FloatArray, y: FloatArray) -> Trend | None:
    """Return the trend of bytes seen at few moments, None where memory doesn't tell of it.

    Args:
        case: The run.
        x: Units done at those moments, not falling.
        y: The bytes that were seen.

    """
    if len(y) < 2 or x[-1] <= x[0] or np.diff(y).min() <= 0:
        return None
    slope = theil_sen(x, y)
    for name, fewest in ((gauge.MALLOC_IN_USE, IN_USE_POINTS), (case.host_metric, LONG_POINTS)):
        memory = _steady(case, name, fewest)
        if memory is not None and _is_like(slope.rate, memory.bytes_per_unit):
            return Trend(
                verdict=memory.verdict,
                bytes_per_unit=slope.rate,
                interval=(slope.low, slope.high),
                unit=case.unit.name,
                points=memory.points,
                net_bytes=float(y[-1] - y[0]),
                reason=f"known at {len(y)} moments; memory in use was {memory.reason}",
            )
    return None


def find_followed(case: Case) -> dict[int, Grower]:
    """Return the paths of libraries that grow as memory in use does, seen too rarely to be judged.

    Rates and gains are in the unit of whole gauges.
    """
    table = case.table
    found: dict[int, Grower] = {}
    full = np.flatnonzero(table.full)
    for path, row in enumerate(table.latest):
        if row.user or row.root is not RootKind.LIBRARY:
            continue
        columns = full[np.isfinite(table.retained[HOST][path, full])]
        y = table.retained[HOST][path, columns]
        if not 2 <= len(y) < FEWEST_POINTS or np.ptp(y) <= ROW_NOISE_BYTES:
            continue
        if columns[-1] != full[-1]:
            continue  # what grew on would be there still
        x = case.work_done[table.at[columns]]
        trend = followed(case, x, y)
        if trend is None:
            continue
        gained = float(y[-1] - y[0])
        boundaries = case.track.index[table.at[columns]]
        found[path] = Grower(
            path=path,
            device=HOST,
            growth="across",
            unit=case.unit.name,
            phase=case.unit.phase,
            trend=trend,
            gained=gained,
            units=case.unit.total,
            columns=columns,
            x=x,
            y=y,
            per_boundary=gained / max(float(boundaries[-1] - boundaries[0]), 1.0),
            spread=spread_of(table.count[path, columns], y),
        )
    return found


def _steady(case: Case, name: str, fewest: int) -> Trend | None:
    if not case.track.has_gauge(name):
        return None
    trend, (x, y) = case.gauge_trend(name), case.gauge_series(name)
    if not is_growth(trend.verdict) or trend.points < fewest:
        return None
    # Readings are closer to each other where a run begins: their thirds aren't those of the work.
    return trend if goes_on(y) or goes_on_evenly(x, y) else None


def _is_like(rate: float, memory: float) -> bool:
    return FOLLOWS * memory <= rate <= MOST * memory
