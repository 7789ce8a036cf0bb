"""The shape of a series: what is kept of it, the pieces that fit it, its slope and its tail.

These are the steps of the growth model, in the order in which it takes them: ``Series`` (what is
kept), slopes (the weighted median slope of all pairs, which outliers don't move), ``Tail`` (whether
the last stretch rises or is flat, and how it rests between rises), and ``fit_shape``.

A break of the fit must lower the log of the mean absolute deviation by more than its cost. That is
a Laplace likelihood whose scale never falls below a share of the range, so that exact series aren't
split for nothing. All places for one and two breaks on a grid of knots are tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from leakscope.analysis.columns.series import FloatArray, IntArray
from leakscope.analysis.growth import policy

MOST_READINGS = 90
"""Readings that are fitted and paired; of more, so many that keep the shape."""
MOST_KNOTS = 24
"""Places at which a break may lie, evenly over the readings: the fit takes a millisecond."""
TIME_CONSTANTS = np.geomspace(0.04, 0.7, 18)
"""Of an approach to a level, as shares of the run: shorter ones are jumps, longer ones look
straight."""
NORMAL_MAD = 1.482602218505602
"""Standard deviations in the median absolute deviation of normal noise."""
ROUNDING = 1e-9
"""Scatter of less than this part of the range is the rounding of floats."""


@dataclass(frozen=True)
class Series:
    """A series up to where it is known what is kept of it."""

    x: FloatArray
    y: FloatArray
    noise: float
    scatter: float
    """Standard deviation of readings about their neighbours: exact series have none."""
    kept_x: FloatArray
    """Work done at the readings that are kept to the end."""
    kept_y: FloatArray
    """What was read there, with its scatter."""
    least: FloatArray
    """The least that was read from there on: it never falls."""
    valleys: IntArray
    """Positions of the lowest reading after each release, up to the next one."""
    greatest_tooth: float
    """The most that was read above what is kept, 0 where nothing was released."""

    @staticmethod
    def of(x: FloatArray, y: FloatArray, noise: float) -> Series:
        """Return what is kept of readings over work; see ``judge_growth``."""
        x, y = _without_repeat(*_readings(x, y), noise)
        scatter = scatter_of(x, y)
        whole = policy.STEP_SHARE * float(np.ptp(y)) if len(y) else 0.0
        step = max(noise, whole, policy.RELEASE_SCATTERS * scatter)
        released = np.flatnonzero(np.diff(y) < -step) + 1
        if len(released) and x[-1] - x[released[-1]] <= np.diff(x[[0, *released]]).max():
            x, y = x[: released[-1] + 1], y[: released[-1] + 1]
        least = np.minimum.accumulate(y[::-1])[::-1]
        parts = np.split(np.arange(len(y)), released[released < len(y)])[1:]
        valleys = np.array([part[np.argmin(y[part])] for part in parts], dtype=np.int64)
        kept = np.flatnonzero(y - least <= step)
        if scatter > 0 and len(valleys) >= policy.FEWEST_GROWING:
            # Garbage that waits somewhat longer for the collector than before is a tooth too.
            between = float(np.diff(x[[0, *released[released < len(y)]]]).max())
            alone = max(policy.REST_FACTOR * between, policy.CONSIDERABLE_SHARE * np.ptp(x))
            is_past = x[-1] - x[valleys[-1]] > alone
            kept = np.concatenate((valleys, kept[kept > valleys[-1]])) if is_past else valleys
            scatter = max(scatter, scatter_of(x[valleys], y[valleys]))
        kept = thinned(kept, MOST_READINGS)
        tooth = float((y - least).max()) if len(valleys) else 0.0
        return Series(x, y, noise, scatter, x[kept], y[kept], least[kept], valleys, tooth)

    @property
    def span(self) -> float:
        """The work from the first reading to where what is kept is known."""
        return float(self.x[-1] - self.x[0]) if len(self.x) else 0.0

    @property
    def rise(self) -> float:
        """What more is kept at its end than at its beginning."""
        return float(self.least[-1] - self.least[0])

    @property
    def is_exact(self) -> bool:
        """Whether scatter is so small that rises and rests can be read off."""
        return self.is_little(float(np.ptp(self.y)))

    def until_last_release(self) -> Series:
        """Return the series up to the lowest reading after its last release."""
        last = int(self.valleys[-1])
        kept = self.kept_x <= self.x[last]
        return replace(
            self,
            x=self.x[: last + 1],
            y=self.y[: last + 1],
            kept_x=self.kept_x[kept],
            kept_y=self.kept_y[kept],
            least=self.least[kept],
        )

    def is_little(self, size: float) -> bool:
        """Return whether scatter is small compared with a change of some size."""
        return policy.RELEASE_SCATTERS * self.scatter <= policy.CONSIDERABLE_SHARE * size

    def step(self, rise: float) -> float:
        """Return what counts as a change in a stretch that rises so far."""
        return max(self.noise, policy.STEP_SHARE * rise, policy.RELEASE_SCATTERS * self.scatter)

    def since(self, begin: float) -> tuple[FloatArray, FloatArray]:
        """Return all readings from some work on, teeth included."""
        later = thinned(np.flatnonzero(self.x >= begin), MOST_READINGS)
        return self.x[later], self.y[later]

    def resting_since(self, begin: float) -> int:
        """Return how many readings tell that nothing was gained since some work.

        Among teeth their lowest readings do, and what came after the last of them.
        """
        if not len(self.valleys):
            return int((self.kept_x >= begin).sum())
        valleys = self.x[self.valleys]
        after = (self.kept_x >= max(begin, float(valleys[-1]))).sum()
        return int(max((valleys >= begin).sum(), after))

    def kept_since(self, begin: float) -> tuple[FloatArray, FloatArray]:
        """Return the readings that are kept from some work on."""
        later = self.kept_x >= begin
        return self.kept_x[later], self.kept_y[later]


def scatter_of(x: FloatArray, y: FloatArray) -> float:
    """Return the standard deviation of readings about the line between their neighbours.

    The median decides, so that breaks and teeth that are wider than a few readings are no scatter.
    """
    if len(x) < policy.FEWEST_GROWING:
        return 0.0
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    off = y[1:-1] - (1 - share) * y[:-2] - share * y[2:]
    off /= np.sqrt(1 + share**2 + (1 - share) ** 2)
    scatter = float(NORMAL_MAD * np.median(np.abs(off)))
    return scatter if scatter > ROUNDING * float(np.ptp(y)) else 0.0


def _readings(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what was read, in the order of work; of several looks at one moment the least."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known].astype(np.float64), y[known].astype(np.float64)
    moments, first = np.unique(x, return_index=True)
    return moments, np.minimum.reduceat(y, first) if len(first) else y


def _without_repeat(x: FloatArray, y: FloatArray, noise: float) -> tuple[FloatArray, FloatArray]:
    """Return readings without the last one, where it repeats the one before as good as at once.

    A run is looked at as its last phase ends and as it ends itself: nothing was done in between,
    and the second look would pass for a rest.
    """
    if len(x) <= policy.FEWEST_READINGS or abs(y[-1] - y[-2]) > noise:
        return x, y
    gaps = np.diff(x)
    is_at_once = gaps[-1] <= policy.LITTLE_SHARE * np.median(gaps[:-1])
    return (x[:-1], y[:-1]) if is_at_once else (x, y)


def thinned(positions: IntArray, most: int) -> IntArray:
    """Return at most so many positions, evenly over them, the first and the last among them."""
    if len(positions) <= most:
        return positions
    return positions[np.unique(np.linspace(0, len(positions) - 1, most).round().astype(np.int64))]


@dataclass(frozen=True)
class Slope:
    """A rate with its interval."""

    rate: float
    low: float
    high: float


def theil_sen(x: FloatArray, y: FloatArray, z: float | None = None) -> Slope:
    """Return Theil and Sen's slope with Sen's interval; zero where no two readings differ in work.

    ``z`` is the normal score of the interval, by default that of 95 %.
    """
    chosen = thinned(np.arange(len(x)), MOST_READINGS)
    x, y = x[chosen], y[chosen]
    first, second = np.triu_indices(len(x), 1)
    worked = x[second] - x[first]
    moved = worked > 0
    if not moved.any():
        return Slope(0.0, 0.0, 0.0)
    slopes = (y[second] - y[first])[moved] / worked[moved]
    order = np.argsort(slopes)
    # Readings lie close together where a run begins: each counts by the work that it stands for.
    spacing = np.gradient(x)
    spacing = np.maximum(spacing, policy.USUAL_GAPS_FACTOR * np.median(spacing))
    weights = (spacing[first] * spacing[second])[moved][order]
    share = np.cumsum(weights) / weights.sum()
    z = policy.Z_INTERVAL if z is None else z
    half = z * math.sqrt(_kendall_variance(y)) / (2 * len(slopes))
    wanted = [0.5 - half, 0.5, 0.5 + half]
    places = np.minimum(np.searchsorted(share, wanted), len(slopes) - 1)
    low, middle, high = slopes[order][places]
    return Slope(float(middle), float(low), float(high))


def kendall_score(y: FloatArray) -> float:
    """Return the normal score of Kendall's S of values in order: above 0 where they rise."""
    first, second = np.triu_indices(len(y), 1)
    s = float(np.sign(y[second] - y[first]).sum())
    variance = _kendall_variance(y)
    return (s - math.copysign(1.0, s)) / math.sqrt(variance) if s and variance else 0.0


def _kendall_variance(y: FloatArray) -> float:
    """Return the variance of Kendall's S without a trend, corrected for ties."""
    n = len(y)
    _, ties = np.unique(y, return_counts=True)
    tied = float((ties * (ties - 1) * (2 * ties + 5)).sum())
    return max(n * (n - 1) * (2 * n + 5) - tied, 0.0) / 18


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
    """Whether scatter is so small that its rises and rests can be read off."""
    is_in_jumps: bool
    """Whether a few rises brought nearly all that it gained."""
    span: float
    is_even: bool
    """Whether it has just enough readings, and each rise is like the others."""

    @staticmethod
    def of(series: Series, begin: float) -> Tail:
        """Return the stretch of a series from some work on."""
        x, y = series.kept_since(begin)
        least = series.least[series.kept_x >= begin]
        rise = float(least[-1] - least[0])
        before = float(least[0] - series.least[0])
        if not len(series.valleys) and len(x) >= policy.FEWEST_GROWING:
            # The bend of what filled up before is no scatter of what follows.
            series = replace(series, scatter=min(series.scatter, scatter_of(x, y)))
        slope = theil_sen(x, y)
        earlier = series.kept_x <= begin
        step = series.step(rise)
        end = int(np.searchsorted(least, least[-1] - step))
        is_flat = _is_flat(series, x, y, slope, before)
        # All that it gained beyond noise came in one jump.
        is_jump = is_flat and slope.rate * float(x[-1] - x[0]) <= series.noise
        return Tail(
            begin=begin,
            rises=rise > max(series.noise, ROUNDING * series.rise)
            and not is_jump
            and _is_significant(series, begin),
            is_flat=is_flat,
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
            is_even=len(x) == policy.EVEN_READINGS and is_even_rise(x, y),
        )


def _is_flat(series: Series, x: FloatArray, y: FloatArray, slope: Slope, before: float) -> bool:
    """Return whether a tail gains next to nothing, by the upper end of its interval.

    Next to nothing is relative to what was gained before, or to the scatter of its readings.
    """
    span = float(x[-1] - x[0])
    little = max(series.noise, policy.STEP_SHARE * series.rise, policy.FLAT_OF_RISE * before)
    if slope.high * span <= little:
        return series.scatter > 0 or slope.low <= 0 or slope.rate * span <= series.noise
    scatter = policy.CONSIDERABLE_SHARE * float(np.ptp(y - slope.rate * x))
    return bool(series.scatter > 0 and slope.high * span <= scatter and not _minima_rise(x, y))


def _minima_rise(x: FloatArray, y: FloatArray) -> bool:
    """Return whether the lowest of neighbouring readings rise, as narrow teeth do on a leak."""
    lowest = np.flatnonzero((y[1:-1] < y[:-2]) & (y[1:-1] <= y[2:])) + 1
    return theil_sen(x[lowest], y[lowest]).low > 0


def _is_significant(series: Series, begin: float) -> bool:
    """Return whether what is kept rises beyond its scatter from some work on.

    Where readings scatter and fall a few times, those that are kept are chosen by how low they are,
    late ones less strictly: then only what came since the last release tells.
    """
    x, y = series.kept_since(begin)
    is_chosen = 0 < len(series.valleys) < policy.FEWEST_GROWING and series.scatter > 0
    if is_chosen:
        x, y = series.since(max(begin, float(series.x[series.valleys[-1]])))
        if len(x) < policy.FEWEST_GROWING:
            return False
    rises = rises_beyond_scatter(x, y)
    if is_chosen or rises or series.scatter > 0:
        return rises
    # Of a staircase the first reading of each level: rests say nothing of its rises.
    least = series.least[series.kept_x >= begin]
    first = np.append(True, np.diff(least) > series.step(float(least[-1] - least[0])))
    return rises_beyond_scatter(x[first], least[first])


def rises_beyond_scatter(x: FloatArray, y: FloatArray) -> bool:
    """Return whether readings rise by more than noise would."""
    if len(x) < policy.EVEN_READINGS:
        return False
    if len(x) == policy.EVEN_READINGS:
        return is_even_rise(x, y)
    if len(x) <= policy.FEW_READINGS:
        return kendall_score(y) >= policy.Z_OF_FEW
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
    """Return the number of rises, larger than noise and than a part of the total, that were kept.

    One over much work is one still: nobody saw whether it came bit by bit.
    """
    step = min(noise, float(least[-1] - least[0]) / (policy.FEWEST_RISES + 1))
    rises, level = 0, float(least[0])
    for value in least.tolist():
        if value > level + step:
            rises, level = rises + 1, value
    return rises


@dataclass(frozen=True)
class Shape:
    """The shape that explains a series best."""

    breaks: tuple[float, ...]
    """The work done at the first reading of each piece but the first."""
    settles_after: float | None = None
    """The time constant with which it approaches a level, in work; None where it is straight."""
    is_surely_curved: bool = False
    """Whether that explains it better than straight pieces, not only as well."""


def fit_shape(x: FloatArray, y: FloatArray, noise: float) -> Shape:
    """Return the shape of what is kept over work; deviations of ``noise`` mean nothing."""
    if len(x) < 3:
        return Shape(())
    scale = max(noise, policy.STEP_SHARE * float(np.ptp(y)), np.finfo(float).tiny)
    knots = thinned(np.arange(len(x) + 1), MOST_KNOTS + 1)
    deviation = _deviations(x, y, knots)
    from_begin, to_end = deviation[0, :], deviation[:, -1]
    candidates = [
        _cheapest(deviation[0, -1], len(x), scale, 0),
        _cheapest(from_begin + to_end, len(x), scale, 1),
        _cheapest(from_begin[:, None] + deviation + to_end[None, :], len(x), scale, 2),
    ]
    best, places = min(candidates, key=lambda candidate: candidate[0])
    breaks = tuple(float(x[knots[place]]) for place in places)
    constant, cost = _settling(x, y, scale)
    if constant is None or cost > best + policy.ALIKE_COST:
        return Shape(breaks)
    return Shape(breaks, constant, is_surely_curved=cost < best - policy.ALIKE_COST)


def _deviations(x: FloatArray, y: FloatArray, knots: IntArray) -> FloatArray:
    """Return the absolute deviation from its line of each piece from a knot to another."""
    x, y = (x - x[0]) / (x[-1] - x[0]), y - y[0]
    sums = [np.concatenate([[0.0], np.cumsum(v)]) for v in (np.ones(len(x)), x, y, x * x, x * y)]
    n, sx, sy, sxx, sxy = (s[knots][None, :] - s[knots][:, None] for s in sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = sxx - sx * sx / n
        slope = np.where(spread > 1e-12, (sxy - sx * sy / n) / spread, 0.0)
        level = (sy - slope * sx) / n
    off = np.abs(y[None, None, :] - level[:, :, None] - slope[:, :, None] * x[None, None, :])
    total = np.concatenate([np.zeros((*off.shape[:2], 1)), np.cumsum(off, axis=2)], axis=2)
    rows, columns = np.indices(off.shape[:2])
    deviation: FloatArray = total[rows, columns, knots[columns]] - total[rows, columns, knots[rows]]
    deviation[n < 2] = np.inf
    return deviation


def _costs(deviation: FloatArray | float, n: int, scale: float, breaks: int) -> FloatArray:
    return np.asarray(n * np.log1p(deviation / (n * scale)) + policy.BREAK_COST * breaks)


def _cheapest(
    deviation: FloatArray, n: int, scale: float, breaks: int
) -> tuple[float, tuple[int, ...]]:
    """Return what the pieces cost that deviate least, and the knots at which they begin."""
    costs = _costs(deviation, n, scale, breaks)
    places = np.unravel_index(int(np.argmin(costs)), costs.shape)
    return float(costs[places]), tuple(map(int, places))


def _settling(x: FloatArray, y: FloatArray, scale: float) -> tuple[float | None, float]:
    """Return the time constant of the approach to a level that fits best, and its cost."""
    if len(x) < policy.FEW_READINGS:
        return None, np.inf
    span = float(x[-1] - x[0])
    t = (x - x[0]) / span
    curves = 1 - np.exp(-t[None, :] / TIME_CONSTANTS[:, None])
    curves -= curves.mean(axis=1, keepdims=True)
    level = y - y.mean()
    height = (curves * level).sum(axis=1) / (curves * curves).sum(axis=1)
    off = np.abs(height[:, None] * curves - level)
    costs = _costs(off.sum(axis=1), len(x), scale, 1)
    best = int(np.argmin(costs))
    if height[best] <= 0 or _ends_straight(t, y, off[best], scale):
        return None, np.inf
    return float(TIME_CONSTANTS[best]) * span, float(costs[best])


def _ends_straight(t: FloatArray, y: FloatArray, off: FloatArray, scale: float) -> bool:
    """Return whether a line explains the second half better than the curve that fits the whole."""
    late = t >= 0.5
    n = int(late.sum())
    if n < policy.FEW_READINGS // 2:
        return False
    done, read = t[late] - t[late].mean(), y[late] - y[late].mean()
    slope = float((done * read).sum() / (done * done).sum())
    line = float(np.abs(slope * done - read).sum())
    curve = _costs(float(off[late].sum()), n, scale, 0)
    return bool(slope > 0 and _costs(line, n, scale, 0) < curve - policy.ALIKE_COST)
