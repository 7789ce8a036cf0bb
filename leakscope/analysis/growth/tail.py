"""The last stretch of a series: whether it rises or is flat, and how it rests between rises."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leakscope.analysis.growth import policy
from leakscope.analysis.growth.kept import Series
from leakscope.analysis.growth.slopes import Slope, kendall_score, theil_sen

FloatArray = npt.NDArray[np.float64]
EVEN = policy.FEWEST_GROWING - 1
"""Readings that suffice if growth is even."""


@dataclass(frozen=True)
class Tail:
    """The last stretch of a series."""

    begin: float
    rises: bool
    """Whether it rises beyond what its scatter explains."""
    is_flat: bool
    """Whether it gains little, by the upper end of its interval."""
    slope: Slope
    readings: int
    rest: float
    """The work since the last rise."""
    resting: int
    """Readings since then."""
    longest_rest: float
    """Between two rises."""
    longest_rest_before: float
    """The same, over the run before it."""
    is_exact: bool
    """Whether its rises and rests can be read off, scatter being little beside them."""
    is_in_jumps: bool
    """Whether a few rises brought nearly all that it gained."""
    span: float
    is_even: bool
    """Whether it has just enough readings for growth of which each rise is like the others."""

    @staticmethod
    def of(series: Series, begin: float) -> Tail:
        """Return the stretch of a series from some work on."""
        x, y = series.kept_since(begin)
        least = series.least[series.kept_x >= begin]
        rise = float(least[-1] - least[0])
        before = float(least[0] - series.least[0])
        slope = theil_sen(x, y, policy.Z_INTERVAL)
        earlier = series.kept_x <= begin
        step = series.step(rise)
        end = rest_begin(least, step)
        return Tail(
            begin=begin,
            rises=rise > max(series.noise, policy.ROUNDING * series.rise)
            and _is_significant(series, begin),
            is_flat=_is_flat(series, x, y, slope, before),
            slope=slope,
            readings=len(x),
            rest=float(x[-1] - x[end]),
            resting=series.resting_since(float(x[end])),
            longest_rest=max(longest_rest(x, least, step), time_of(step, x, least)),
            longest_rest_before=longest_rest(
                series.kept_x[earlier], series.least[earlier], series.step(before)
            ),
            is_exact=series.is_little(rise),
            is_in_jumps=is_in_jumps(x, least),
            span=float(x[-1] - x[0]),
            is_even=len(x) == EVEN and is_even_rise(x, y),
        )


def _is_flat(series: Series, x: FloatArray, y: FloatArray, slope: Slope, before: float) -> bool:
    """Return whether a tail gains next to nothing, by the upper end of its interval.

    Next to nothing beside what was gained before it, or beside the scatter of its readings.
    """
    span = float(x[-1] - x[0])
    little = max(series.noise, policy.STEP_SHARE * series.rise, policy.FLAT_OF_RISE * before)
    if slope.high * span <= little:
        return series.scatter > 0 or slope.low <= 0 or slope.rate * span <= series.noise
    scatter = policy.FLAT_OF_NOISE * float(np.ptp(y - slope.rate * x))
    return bool(series.scatter > 0 and slope.high * span <= scatter and not _minima_rise(x, y))


def _minima_rise(x: FloatArray, y: FloatArray) -> bool:
    """Return whether the lowest of neighbouring readings rise, as narrow teeth do on a leak."""
    lowest = np.flatnonzero((y[1:-1] < y[:-2]) & (y[1:-1] <= y[2:])) + 1
    return theil_sen(x[lowest], y[lowest], policy.Z_INTERVAL).low > 0


def _is_significant(series: Series, begin: float) -> bool:
    """Return whether what is kept rises beyond its scatter from some work on.

    Where readings scatter and fall a few times, those that are kept are chosen by how low they are,
    late ones less strictly: then only what came since the last release tells.
    """
    x, y = series.kept_since(begin)
    is_chosen = 0 < len(series.valleys) < policy.FEWEST_SCATTERED and series.scatter > 0
    if is_chosen:
        x, y = series.since(max(begin, float(series.x[series.valleys[-1]])))
        if len(x) < policy.FEWEST_GROWING:
            return False
    if is_chosen or rises_beyond_scatter(x, y):
        return rises_beyond_scatter(x, y)
    return series.scatter == 0 and rises_beyond_scatter(*_levels(series, begin))


def _levels(series: Series, begin: float) -> tuple[FloatArray, FloatArray]:
    """Return the first reading of each level of a staircase: rests say nothing of its rises."""
    x, least = series.kept_x[series.kept_x >= begin], series.least[series.kept_x >= begin]
    step = series.step(float(least[-1] - least[0]))
    first = np.append(True, np.diff(least) > step)
    return x[first], least[first]


def rises_beyond_scatter(x: FloatArray, y: FloatArray) -> bool:
    """Return whether readings rise by more than noise would."""
    if len(x) < EVEN:
        return False
    if len(x) <= policy.FEW_READINGS:
        return is_even_rise(x, y) if len(x) == EVEN else kendall_score(y) >= policy.Z_OF_FEW
    return theil_sen(x, y, policy.Z_GROWING).low > 0


def is_even_rise(x: FloatArray, y: FloatArray) -> bool:
    """Return whether every rise is like the others, for its work: as noise or a warm-up isn't."""
    rates = np.diff(y) / np.diff(x)
    return bool(rates.min() > 0 and rates.max() <= policy.EVEN_FACTOR * rates.min())


def longest_rest(x: FloatArray, y: FloatArray, step: float) -> float:
    """Return the longest stretch of work between rises in which what is kept gains no step."""
    if len(y) < 3:
        return 0.0
    ends = np.searchsorted(y, y + step, side="right") - 1
    is_between = (y > y[0] + step) & (ends < len(y) - 1)
    return float((x[ends] - x)[is_between].max(initial=0.0))


def time_of(step: float, x: FloatArray, y: FloatArray) -> float:
    """Return the work in which growth brings a step: for so long it seems to rest."""
    rise = float(y[-1] - y[0])
    return step / rise * float(x[-1] - x[0]) if rise > 0 else 0.0


def rest_begin(y: FloatArray, step: float) -> int:
    """Return the reading since which what is kept has gained no step."""
    return int(np.searchsorted(y, y[-1] - step))


def is_in_jumps(x: FloatArray, y: FloatArray) -> bool:
    """Return whether fewer rises than growth takes bring nearly all of it.

    A rise over much work is no jump: readings are often far apart where a run has become long.
    """
    rises, rise = np.diff(y), float(y[-1] - y[0])
    if rise <= 0:
        return False
    usual = rise / float(x[-1] - x[0])
    steep = rises[rises > policy.JUMP_FACTOR * usual * np.diff(x)]
    greatest = np.sort(steep)[-(policy.FEWEST_RISES - 1) :]
    return bool(greatest.sum() > policy.JUMP_SHARE * rise)


def rises_of(least: FloatArray, noise: float) -> int:
    """Return in how many rises what is kept came, such as are more than noise or a part of it all.

    One over much work is one still: nobody saw whether it came bit by bit.
    """
    step = min(noise, float(least[-1] - least[0]) / (policy.FEWEST_RISES + 1))
    rises, level = 0, float(least[0])
    for value in least.tolist():
        if value > level + step:
            rises, level = rises + 1, value
    return rises
