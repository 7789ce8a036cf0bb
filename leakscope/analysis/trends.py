"""Robust rates and the shape of a series: growing, stepwise, bounded, sawtooth, flat.

The rate is Theil and Sen's median of pairwise slopes with Sen's rank interval; whether there is a
monotone trend at all is Mann and Kendall's test. The shape rules are those of next-leak: growth
must beat a noise floor, and a series that gives back more than a tenth of its net growth is no
leak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leakscope.model.trend import Trend, TrendVerdict

FloatArray = npt.NDArray[np.float64]

FEWEST_POINTS = 4
"""Fewer comparable boundaries can't tell a leak from a warm-up (next-leak accused 3 of 9 healthy
programs at four cycles before it dropped the first)."""
GIVEN_BACK = 0.10
"""Share of the net growth that a leak may give back; healthy programs give back 22 to 33 %."""
PLATEAU_SHARE = 1 / 3
"""A last stretch this long without growth means that growth has ended."""
LEAST_PLATEAU_SHARE = PLATEAU_SHARE / 2
"""A third of the boundaries may do as well, but not of those that lie close together."""
STEADY_PLATEAU_SHARE = 0.25
STEADY_POINTS = 6
STEADY_RESTS = 3.0
"""Growth that so many boundaries showed without a rest to speak of has ended sooner: a stretch
without any that is so many times as long as the longest rest before it. A buffer that fills up in
the middle of a run is looked at twice after that, or once."""
LEVELS_OFF = 0.34
"""A last third that grows slower than this part of the first half is levelling off."""
THIRD_SHARE = 0.2
"""Each third of a run must bring this part of the growth: a warm-up's last third does not."""
EVEN_PARTS = 6
EVEN_POINTS = 5
"""Growth is called even only where so many boundaries or more can show it."""
MOST_POINTS = 120
"""More points than this are thinned before slopes are paired: 7,140 slopes are plenty."""
Z95 = 1.959963984540054


@dataclass(frozen=True)
class Slope:
    """A rate with its 95 % interval."""

    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class MannKendall:
    """Kendall's S, its variance under no trend, the normal score and the two-sided p."""

    s: float
    variance: float
    z: float
    p: float


def theil_sen(x: FloatArray, y: FloatArray) -> Slope:
    """Return the median pairwise slope and Sen's 95 % interval of it; zero without two points."""
    x, y = thinned(x, y)
    return slope_of_pairs(*pairwise(x, y), ties_in=y)


def pairwise(x: FloatArray, y: FloatArray) -> tuple[FloatArray, int]:
    """Return the slopes of all pairs that differ in x, and the number of points."""
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    moved = run != 0
    return (y[second] - y[first])[moved] / run[moved], len(x)


def slope_of_pairs(slopes: FloatArray, points: int, *, ties_in: FloatArray) -> Slope:
    """Return the median of given slopes with the rank interval that so many points allow."""
    if len(slopes) == 0:
        return Slope(0.0, 0.0, 0.0)
    ordered = np.sort(slopes)
    spread = Z95 * math.sqrt(max(kendall_variance(ties_in, points), 0.0))
    low = int((len(ordered) - spread) / 2)
    high = math.ceil((len(ordered) + spread) / 2)
    return Slope(
        rate=float(np.median(ordered)),
        low=float(ordered[max(low, 0)]),
        high=float(ordered[min(high, len(ordered) - 1)]),
    )


def mann_kendall(y: FloatArray) -> MannKendall:
    """Return the Mann–Kendall test of a monotone trend in values given in order."""
    n = len(y)
    if n < 2:
        return MannKendall(0.0, 0.0, 0.0, 1.0)
    first, second = np.triu_indices(n, 1)
    s = float(np.sign(y[second] - y[first]).sum())
    variance = kendall_variance(y, n)
    if s == 0 or variance <= 0:
        return MannKendall(s, variance, 0.0, 1.0)
    z = (s - math.copysign(1.0, s)) / math.sqrt(variance)
    return MannKendall(s, variance, z, math.erfc(abs(z) / math.sqrt(2)))


def kendall_variance(y: FloatArray, n: int) -> float:
    """Return the variance of Kendall's S for n points, corrected for ties in y."""
    _, ties = np.unique(y, return_counts=True)
    tied = (ties * (ties - 1) * (2 * ties + 5)).sum()
    return float(n * (n - 1) * (2 * n + 5) - tied) / 18.0


def thinned(x: FloatArray, y: FloatArray, most: int = MOST_POINTS) -> tuple[FloatArray, FloatArray]:
    """Return evenly chosen points, the first and the last among them."""
    if len(x) <= most:
        return x, y
    chosen = np.unique(np.linspace(0, len(x) - 1, most).round().astype(int))
    return x[chosen], y[chosen]


def judge(
    x: FloatArray, y: FloatArray, *, unit: str, noise_bytes: float, warm: bool = False
) -> Trend:
    """Return rate and shape of a series of bytes over a counter of work.

    Args:
        x: The counter of work, not falling.
        y: Bytes at those counts.
        unit: What x counts.
        noise_bytes: Changes up to this much mean nothing.
        warm: Whether warm-up is over already, so that the first point counts too.

    """
    if not warm:
        begin = steady_from(y, x)
        x, y = x[begin:], y[begin:]
    if len(y) < FEWEST_POINTS or x[-1] <= x[0]:
        return _trend(TrendVerdict.INCONCLUSIVE, x, y, unit, "too few comparable boundaries")
    verdict, reason = _shape(x, y, noise_bytes)
    return _trend(verdict, x, without_jump(y, x) if is_growth(verdict) else y, unit, reason)


def steady_from(y: FloatArray, x: FloatArray | None = None) -> int:
    """Return the first point after warm-up and after a long rest before growth began.

    Args:
        y: Bytes at counts of work.
        x: Those counts, where they may lie unevenly.

    """
    begin = warm_up(y, x)
    return begin + late_start(y[begin:])


def warm_up(y: FloatArray, x: FloatArray | None = None) -> int:
    """Return how many first points are warm-up.

    One of few, up to a tenth of many. Of exactly four points the first stays when its growth is
    like that of the others, since without it nothing could be said.
    """
    n = len(y)
    if n > FEWEST_POINTS:
        return max(1, min(n // 10, n - FEWEST_POINTS))
    if n < FEWEST_POINTS:
        return 0
    rises = np.diff(y) if x is None else np.diff(y) / np.maximum(np.diff(x), 1e-9)
    return 0 if rises[0] <= 1.5 * max(float(rises[1:].min()), 0.0) else 1


def late_start(y: FloatArray) -> int:
    """Return from which point on growth can be seen, when a rest of a third or more precedes it."""
    net = float(y[-1] - y[0]) if len(y) else 0.0
    if net <= 0:
        return 0
    moved = np.flatnonzero(np.abs(y - y[0]) > 0.02 * net)
    rest = int(moved[0]) - 1 if len(moved) else 0
    return rest if rest >= len(y) * PLATEAU_SHARE and len(y) - rest >= FEWEST_POINTS else 0


def _shape(x: FloatArray, y: FloatArray, noise: float) -> tuple[TrendVerdict, str]:
    net = float(y[-1] - y[0])
    if float(y.max() - y.min()) <= noise:
        return TrendVerdict.FLAT, "doesn't change"
    fall = float((np.maximum.accumulate(y) - y).max())
    if net <= noise:
        if fall > noise and float((y - np.minimum.accumulate(y)).max()) > noise:
            return TrendVerdict.SAWTOOTH, "rises and falls back"
        return TrendVerdict.FLAT, "shrinks"
    if fall > max(noise, GIVEN_BACK * net):
        return TrendVerdict.SAWTOOTH, f"gives back {100 * min(fall / net, 1):.0f} % of its growth"
    return _shape_of_rise(x, y, noise)


def _shape_of_rise(x: FloatArray, y: FloatArray, noise: float) -> tuple[TrendVerdict, str]:
    level = without_jump(y, x)
    if level is not y:
        verdict, reason = _shape(x, level, noise)
        stepped = (TrendVerdict.BOUNDED, "stepped up once")
        return (verdict, reason) if is_growth(verdict) else stepped
    net = float(y[-1] - y[0])
    if _is_plateau(x, y, plateau_start(y, max(0.02 * net, min(noise, 0.1 * net)))):
        return TrendVerdict.BOUNDED, "stopped growing"
    rises = np.diff(y) > 0.02 * net / (len(y) - 1)
    if rises.mean() > 0.5 and levels_off(x, y):
        return TrendVerdict.BOUNDED, "levels off"
    if len(y) >= 8 and mann_kendall(thinned(x, y)[1]).p > 0.05:
        return TrendVerdict.FLAT, "no significant trend"
    verdict = TrendVerdict.STEPWISE if rises.mean() < 0.7 else TrendVerdict.GROWING
    return verdict, f"higher at {int(rises.sum())} of {len(rises)} boundaries"


def without_jump(y: FloatArray, x: FloatArray | None = None) -> FloatArray:
    """Return the series with its one outstanding jump taken out, itself when there is none.

    A model moved to memory in mid-run is no leak, and must not hide one either. A rise that so much
    more work explains is no jump.

    Args:
        y: Bytes at counts of work.
        x: Those counts, where they may lie unevenly.

    """
    rises = np.diff(y)
    if len(rises) < 2:
        return y
    at = int(rises.argmax())
    others = np.delete(rises, at)
    if rises[at] < 0.5 * float(y[-1] - y[0]) or rises[at] < 4 * float(others.max()):
        return y
    usual = float(np.median(others))
    if x is not None:
        work, elsewhere = np.diff(x), np.delete(np.diff(x), at)
        rates = others[elsewhere > 0] / elsewhere[elsewhere > 0]
        usual = float(np.median(rates)) * float(work[at]) if len(rates) else usual
        if rises[at] < 2 * usual:
            return y
    level = y.copy()
    level[at + 1 :] -= rises[at] - usual
    return level


def plateau_start(y: FloatArray, tolerance: float) -> int:
    """Return the index from which the series stays within the tolerance of its last value."""
    off = np.flatnonzero(np.abs(y - y[-1]) > tolerance)
    return int(off[-1]) + 1 if len(off) else 0


def goes_on(y: FloatArray, *, at_first: float = THIRD_SHARE) -> bool:
    """Return whether growth after warm-up goes on through each third of a series.

    Args:
        y: Bytes at counts of work, or at moments.
        at_first: The part of the growth that the first third must bring.

    """
    y = y[warm_up(y) :]
    if len(y) < FEWEST_POINTS:
        return False
    wanted = (at_first, THIRD_SHARE, THIRD_SHARE)
    edges = np.interp(np.linspace(0, len(y) - 1, 4), np.arange(len(y)), y)
    net = float(edges[-1] - edges[0])
    return bool(net > 0 and (np.diff(edges) >= np.array(wanted) * net).all())


def goes_on_evenly(x: FloatArray, y: FloatArray) -> bool:
    """Return whether growth is as good as linear: each sixth of it brings half its part or more.

    A warm-up is over sooner, and what settles in steps, as an allocator's arenas do, rests between.
    """
    begin = warm_up(y)
    x, y = x[begin:], y[begin:]
    if len(y) < EVEN_POINTS:
        return False
    edges = np.interp(np.linspace(x[0], x[-1], EVEN_PARTS + 1), x, y)
    net = float(edges[-1] - edges[0])
    return bool(net > 0 and (np.diff(edges) >= net / EVEN_PARTS / 2).all())


def _is_plateau(x: FloatArray, y: FloatArray, start: int) -> bool:
    length, rest = len(y) - start, x[-1] - x[start]
    before = _longest_rest(x[: start + 1], y[: start + 1])
    if length < 2 or rest <= 1.5 * before:
        return False
    share = rest / (x[-1] - x[0])
    is_steady = start >= STEADY_POINTS and rest > STEADY_RESTS * before
    if is_steady and share >= STEADY_PLATEAU_SHARE:
        return True
    if length < (2 if len(y) < 6 else 3) or share < LEAST_PLATEAU_SHARE:
        return False
    return bool(max((length - 1) / (len(y) - 1), share) >= PLATEAU_SHARE)


def _longest_rest(x: FloatArray, y: FloatArray) -> float:
    """Return the longest stretch of x without growth: a staircase rests between its steps."""
    if len(y) < 2:
        return 0.0
    rising = np.flatnonzero(np.diff(y) > 0.02 * float(y[-1] - y[0]))
    if len(rising) < 2:
        return 0.0
    return float((x[rising[1:]] - x[rising[:-1] + 1]).max())


def levels_off(x: FloatArray, y: FloatArray) -> bool:
    """Return whether the last third grows much slower than the first half did.

    Where its boundaries lie close together, as where there is but one, what was gained since the
    one before them counts too.
    """
    if len(y) < 6:
        return False
    half, third = (x[0] + x[-1]) / 2, (x[-1] - x[0]) / 3
    begin = int(np.searchsorted(x, x[-1] - third))
    if x[-1] - x[begin] < third / 2:
        begin -= 1
    early, last = x <= half, slice(begin, None)
    if early.sum() < 3:
        return False
    before = theil_sen(x[early], y[early]).rate
    return bool(before > 0 and theil_sen(x[last], y[last]).rate < LEVELS_OFF * before)


def _trend(verdict: TrendVerdict, x: FloatArray, y: FloatArray, unit: str, reason: str) -> Trend:
    slope = theil_sen(x, y) if len(y) >= 2 else Slope(0.0, 0.0, 0.0)
    return Trend(
        verdict=verdict,
        bytes_per_unit=slope.rate,
        interval=(slope.low, slope.high),
        unit=unit,
        points=len(y),
        net_bytes=float(y[-1] - y[0]) if len(y) else 0.0,
        reason=reason,
    )


def is_growth(verdict: TrendVerdict) -> bool:
    """Return whether a verdict accuses."""
    return verdict in {TrendVerdict.GROWING, TrendVerdict.STEPWISE}
