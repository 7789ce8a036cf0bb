"""The growth model: does what is kept grow with the work, and is it still growing?

One function, ``judge_growth``, for every series: a pool of memory, a term of the ledger, a row of
the census, a count. Its numbers are in ``policy``, the mathematics of its steps in ``shape``.

1. *What is kept* is the least value that the series takes from each moment to its end. Readings
   above it are teeth: memory that was released again. A series without releases is what it keeps.
   The right end is censored: what came after the last release may be a tooth as well, so it counts
   only if it is longer than the longest stretch between releases before.
2. *Shape*: at most three straight pieces over work (a warm-up, a jump or a fill, and what follows),
   or an exponential approach to a level. The fit is by least absolute deviations with a penalty for
   each break. The last piece is the **tail**.
3. *Growing*: the tail's slope is above zero with its interval (Theil and Sen's slope with Sen's
   interval at 99 %; Kendall's score for few readings), it rises in at least three rises that are no
   jumps, it takes a fifth of the run, and it is longer than the longest rest before.
   *Bounded*: the tail is flat and twice as long as any rest before, or the curve has settled and
   hardly rises in its last third, or the series came back late to its least, but not at the very
   end for the first time. *Inconclusive*: neither; ``more_work`` is how much more
   work would decide, where that can be estimated. So is an exact series that rose less, over most
   of the work, than before, and was not read in there, or less than half as fast in its last gap,
   where it was read more seldom; and one whose releases took more than half
   as much as is kept more, unless what they left grows by itself: its growth may be a tooth.
4. *Rate*: the tail's slope, whatever came before it. A tail whose second half rises less than half
   as much as its first slows down; its second half gives the forecast.

The verdict doesn't change if bytes, with ``noise``, or work are scaled or shifted.

Sources: Theil (1950) and Sen (1968) for slope and interval, Kendall (1938) for the score; the
penalised segments are change-point detection with an information criterion and a Laplace
likelihood; growth per path that must persist is BLeak's (Vilk and Berger, 2018) and LeakCanary's
``ObjectGrowthDetector``.
"""

from __future__ import annotations

import msgspec
import numpy as np

from leakscope.analysis.columns.series import BoolArray, FloatArray
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.shape import (
    Series,
    Shape,
    Tail,
    fit_shape,
    rises_beyond_scatter,
    rises_of,
    theil_sen,
)
from leakscope.model.trend import Reason, Trend, TrendVerdict

_MAY_RISE = frozenset({Reason.SHORT_RISE, Reason.SETTLING, Reason.SCATTERED})
_GROWS = frozenset({Reason.STEADY, Reason.SLOWING})
_ENDED = frozenset(
    {Reason.UNCHANGED, Reason.RELEASED, Reason.STOPPED, Reason.SETTLED, Reason.NO_TREND}
)
"""Reasons by which a series is bounded; by those in neither set nobody can say."""


def judge_growth(x: FloatArray, y: FloatArray, *, noise: float = 0.0) -> Trend:
    """Return whether a series grows with the work.

    Args:
        x: Work done at each reading, not falling.
        y: What was read: bytes, or a count. NaN where nothing was.
        noise: Changes up to this much mean nothing, in the unit of y.

    """
    series = Series.of(x, y, noise)
    if len(series.x) < policy.FEWEST_READINGS or series.span <= 0:
        return _concluded(series, Reason.TOO_FEW, 0)
    if np.ptp(series.y) <= noise:
        return _concluded(series, Reason.UNCHANGED, 0)
    begin = float(series.x[0])
    if _is_released_late(series):
        if _is_given_up_at_the_end(series):
            return _concluded(series, Reason.SHORT_REST, begin, series.span)
        return _concluded(
            series, Reason.RELEASED if len(series.valleys) else Reason.UNCHANGED, begin
        )
    found = _judge_shape(series)
    if found.reason in _MAY_RISE and _rises_evenly(series):
        found = _concluded(series, Reason.STEADY, begin)
    if not found.is_growing:
        return found
    if _rises_by_a_tooth(series) or _was_as_high_before(series, found):
        reason = Reason.SCATTERED
    elif _may_have_stopped_unread(series) or _falls_behind_at_last(series, found):
        reason = Reason.SETTLING
    else:
        return found
    more = _further(series, series.span)
    return msgspec.structs.replace(
        found, verdict=TrendVerdict.INCONCLUSIVE, reason=reason, more_work=more
    )


def _judge_shape(series: Series) -> Trend:
    """Judge what is kept by the pieces, or the curve, that explain it best."""
    shape = fit_shape(series.kept_x, series.kept_y, max(series.noise / 2, series.scatter))
    if shape.settles_after is None:
        return _judge_tail(series, shape)
    if shape.is_surely_curved:
        return _settling(series, shape.settles_after)
    straight = _judge_tail(series, shape)
    first, second = _half_rates(series.kept_x, series.kept_y)
    if not straight.is_growing or second >= policy.EVEN_HALVES * first:
        return straight
    left = max(policy.SETTLED * shape.settles_after - series.span, series.span / 2)
    return msgspec.structs.replace(
        straight,
        verdict=TrendVerdict.INCONCLUSIVE,
        reason=Reason.SETTLING,
        more_work=_further(series, left),
    )


def _rises_evenly(series: Series) -> bool:
    """Return whether the whole of an exact series rises in many small rises, through both halves.

    Breaks lie in each step of a staircase that is looked at often at first and seldom later.
    """
    whole = Tail.of(series, float(series.x[0]))
    if not whole.is_exact or whole.is_in_jumps or whole.readings <= policy.FEW_READINGS:
        return False
    if not whole.rises or _lacking(series, whole) > 0 or _rests_longer(whole):
        return False
    if rises_of(series.least, series.noise) < policy.FEWEST_RISES:
        return False
    middle = float(series.x[0]) + series.span / 2
    halfway = float(np.interp(middle, series.kept_x, series.least))
    first, second = halfway - float(series.least[0]), float(series.least[-1]) - halfway
    return 0 < first <= policy.EVEN_FACTOR * second and second <= policy.JUMP_STEEPNESS * first


def _rises_by_a_tooth(series: Series) -> bool:
    """Return whether all growth may be one more tooth: releases took more than half as much as is
    kept more, the last one is not long ago, and what they left doesn't grow by itself.

    Where readings lie further apart than releases did, others may have come in between.
    """
    if series.greatest_tooth <= policy.MOST_SHARE * series.rise:
        return False
    lows = series.x[[0, *series.valleys]]
    apart = float(np.diff(lows).max())
    is_long_ago = series.x[-1] - lows[-1] > policy.REST_FACTOR * apart
    if is_long_ago and np.median(np.diff(series.x[series.valleys[-1] :])) <= apart:
        return False
    released = series.until_last_release()
    return len(released.kept_x) < policy.FEWEST_READINGS or not _judge_shape(released).is_growing


def _was_as_high_before(series: Series, found: Trend) -> bool:
    """Return whether a tail of few readings falls in between and reaches hardly higher in its
    second half than in its first: what is kept more may be a population's that goes up and down.

    Of more readings their slope and its interval tell that.
    """
    later = series.x >= found.tail_from
    x, y = series.x[later], series.y[later]
    falls = bool((np.diff(y) < -series.noise).any())
    is_early = x <= (x[0] + x[-1]) / 2
    if not falls or not policy.FEWEST_GROWING <= len(x) <= policy.FEW_READINGS or is_early.all():
        return False
    higher = float(y[~is_early].max() - y[is_early].max())
    return higher < policy.CONSIDERABLE_SHARE * found.bytes_per_unit * float(x[-1] - x[0])


def _may_have_stopped_unread(series: Series) -> bool:
    """Return whether an exact series rose less, over most of the work, than it had before, and was
    not read in there: it may have risen on as before and reached a bound. So it may where it rises
    far more steeply again afterwards: it may have been released in between.
    """
    x, y = series.kept_x, series.kept_y
    gap = int(np.argmax(np.diff(x))) if len(x) > policy.FEWEST_READINGS else 0
    if not series.is_exact or gap < policy.FEWEST_READINGS - 1 or x[gap] <= x[0]:
        return False
    width, risen = float(x[gap + 1] - x[gap]), float(y[gap + 1] - y[gap])
    later, rises_on = float(x[-1] - x[gap + 1]), float(y[-1] - y[gap + 1])
    is_resumed = later > 0 and rises_on / later > policy.ALIKE_FACTOR * max(risen, 0.0) / width
    if width <= policy.MOST_SHARE * series.span or (rises_on > series.noise and not is_resumed):
        return False
    step = float(np.diff(y[: gap + 1]).max())  # of a staircase that may be due
    before = float(y[gap] - y[0]) / float(x[gap] - x[0])
    return risen + step < policy.EVEN_HALVES * before * width


def _falls_behind_at_last(series: Series, found: Trend) -> bool:
    """Return whether an exact series was read more seldom in the end, and rose there by less than
    half as fast as its tail did before: it may have reached a bound.
    """
    x, y = series.kept_since(found.tail_from)
    if not series.is_exact or len(x) <= policy.FEWEST_GROWING:
        return False
    width, risen = float(x[-1] - x[-2]), float(y[-1] - y[-2])
    is_seldom = width > policy.ALIKE_FACTOR * float(np.median(np.diff(x)))
    if not is_seldom or width <= policy.LITTLE_SHARE * series.span or x[-2] <= x[0]:
        return False
    before = float(y[-2] - y[0]) / float(x[-2] - x[0])
    step = max(float((np.diff(y[:-1]) - before * np.diff(x[:-1])).max()), 0.0)  # may be due
    return risen + step < policy.SLOWING * before * width


def _is_released_late(series: Series) -> bool:
    """Return whether a series comes back, late in the run, to the least that it ever was.

    Where readings scatter once isn't enough: it must have been as low in the first half already.
    """
    step = max(series.noise, policy.STEP_SHARE * float(np.ptp(series.y)))
    if series.rise > step:
        return False
    lowest = series.x[series.y <= series.y.min() + step]
    early, late = (lowest[[0, -1]] - series.x[0]) / series.span
    falls = theil_sen(*series.since(float(series.x[0]))).high <= 0
    return bool(
        falls or (late >= policy.LATE_SHARE and (series.is_exact or early <= policy.MOST_SHARE))
    )


def _is_given_up_at_the_end(series: Series) -> bool:
    """Return whether a series grew until its last reading, or its last tenth, and was released
    there for the first time: a program that has done its work gives up all that it holds.
    """
    x, y = series.x, series.y
    high = np.flatnonzero(y > y.min() + policy.CONSIDERABLE_SHARE * float(np.ptp(y)))
    last = int(high[-1])
    if last == len(x) - 1:
        return False
    is_last_alone = last == len(x) - 2
    if not is_last_alone and x[-1] - x[last] > policy.LITTLE_SHARE * series.span:
        return False
    return judge_growth(x[: last + 1], y[: last + 1], noise=series.noise).is_growing


def _settling(series: Series, constant: float) -> Trend:
    """Judge growth that approaches a level, by how much of the way it has come."""
    begin = float(series.x[0])
    left = policy.SETTLED * constant - series.span
    if left <= 0 and not _rises_on(series):
        return _concluded(series, Reason.SETTLED, begin)
    return _concluded(series, Reason.SETTLING, begin, left if left > 0 else series.span)


def _rises_on(series: Series) -> bool:
    """Return whether the last third of what has settled still rises, by a part of all that it rose
    by: something else may go on growing.
    """
    x, y = series.kept_x, series.kept_y
    late = x >= x[-1] - (1 - policy.LATE_SHARE) * series.span
    if late.sum() < policy.FEWEST_GROWING:
        return False
    slope = theil_sen(x[late], y[late])
    risen = slope.rate * float(x[late][-1] - x[late][0])
    return bool(slope.low > 0 and risen > max(series.noise, policy.STEP_SHARE * series.rise))


def _judge_tail(series: Series, shape: Shape) -> Trend:
    """Judge the last piece; one that rests no longer than before is part of what precedes it."""
    begins = [*reversed(shape.breaks), float(series.x[0])]
    for place, begin in enumerate(begins):
        tail = Tail.of(series, begin)
        is_last = place == len(begins) - 1
        if is_last or not _belongs_to_what_precedes(series, tail, begins[place + 1]):
            break
    judge_tail = _judge_rise if tail.rises else _judge_rest
    return judge_tail(series, tail, is_whole=is_last)


def _belongs_to_what_precedes(series: Series, tail: Tail, before: float) -> bool:
    """Return whether a tail is a rest such as there were before, or goes on as the piece that
    begins at ``before``.
    """
    if not series.is_exact:
        return tail.span < policy.GROWING_SHARE * series.span
    is_short = tail.readings < policy.FEWEST_GROWING and not tail.is_flat
    if tail.rises or is_short:
        lacks = is_short or _lacking(series, tail) > 0
        return lacks and _goes_on_alike(series, tail.begin, before)
    rest = tail.span if tail.is_flat else tail.rest
    return rest <= policy.REST_FACTOR * tail.longest_rest_before


def _goes_on_alike(series: Series, begin: float, before: float) -> bool:
    """Return whether two pieces rise about as steeply: a kink in one growth, no other growth."""
    middle = (series.kept_x >= before) & (series.kept_x <= begin)
    pieces = (series.kept_x[middle], series.kept_y[middle]), series.kept_since(begin)
    rates = [theil_sen(x, y).rate for x, y in pieces]
    return min(rates) > 0 and max(rates) <= policy.ALIKE_FACTOR * min(rates)


def _judge_rise(series: Series, tail: Tail, *, is_whole: bool) -> Trend:
    """Judge a tail that rises: is it long enough to be more than a jump or a fill?"""
    lacking = _lacking(series, tail)
    if tail.is_exact and _rests_longer(tail):
        return _judge_rest(series, tail, is_whole=is_whole)
    if not tail.is_exact and (_ends_flat(series, tail) or _rises_by_last_alone(series, tail)):
        lacking = max(lacking, (1 - policy.LATE_SHARE) * tail.span)
    if lacking > 0:
        return _concluded(series, Reason.SHORT_RISE, tail.begin, lacking)
    first, second = _half_rates(*series.kept_since(tail.begin))
    is_slowing = second < policy.SLOWING * first
    if not is_slowing and not (tail.is_exact and second < policy.EVEN_HALVES * first):
        return _concluded(series, Reason.STEADY, tail.begin)
    if (is_slowing and tail.readings <= policy.FEW_READINGS) or _was_steeper(series, tail):
        return _concluded(series, Reason.SETTLING, tail.begin, tail.span)
    return _concluded(series, Reason.SLOWING if is_slowing else Reason.STEADY, tail.begin)


def _was_steeper(series: Series, tail: Tail) -> bool:
    """Return whether growth before a tail that slows down was steeper still: it may be settling."""
    earlier = series.kept_x <= tail.begin
    before = theil_sen(series.kept_x[earlier], series.kept_y[earlier])
    return policy.SLOWING * before.rate > tail.slope.rate


def _lacking(series: Series, tail: Tail) -> float:
    """Return how much more work a tail that rises must go on, 0 where it is long enough."""
    needed = policy.GROWING_SHARE * series.span
    if tail.is_exact:
        needed = max(needed, tail.longest_rest)
    lacking = max(needed - tail.span, 0.0)
    each = tail.span / max(tail.readings - 1, 1)
    if not tail.is_even:
        lacking = max(lacking, (policy.FEWEST_GROWING - tail.readings) * each)
    if tail.is_in_jumps:
        lacking = max(lacking, tail.longest_rest + each)
    return lacking


def _ends_flat(series: Series, tail: Tail) -> bool:
    """Return whether the last third of what rises in scatter doesn't rise by itself."""
    x, y = series.kept_since(tail.begin)
    late = int(np.searchsorted(x, x[0] + policy.LATE_SHARE * tail.span))
    begin = max(min(late, len(x) - policy.EVEN_READINGS), 0)
    slope = theil_sen(x[begin:], y[begin:])
    return slope.low <= 0 and slope.rate < policy.SLOWING * tail.slope.rate


def _rises_by_last_alone(series: Series, tail: Tail) -> bool:
    """Return whether scattered readings rise by the last one alone, far from the others."""
    x, y = series.kept_since(tail.begin)
    is_far = float(x[-1] - x[-2]) > policy.MOST_SHARE * tail.span
    return is_far and not rises_beyond_scatter(x[:-1], y[:-1])


def _rests_longer(tail: Tail) -> bool:
    if tail.resting < policy.FEWEST_READINGS:
        return False
    least = max(policy.REST_FACTOR * tail.longest_rest, policy.LITTLE_SHARE * tail.span)
    return tail.rest > least


def _judge_rest(series: Series, tail: Tail, *, is_whole: bool) -> Trend:
    """Judge a tail that doesn't rise: is it flat, and longer than any rest before?"""
    rest = tail.span if tail.is_flat else tail.rest
    resting = tail.readings if tail.is_flat else tail.resting
    before = tail.longest_rest_before if tail.is_flat else tail.longest_rest
    lacking = policy.REST_FACTOR * before - rest
    share = policy.CONSIDERABLE_SHARE
    lacking = max(lacking, (share * series.span - rest) / (1 - share))
    each = series.span / max(len(series.x) - 1, 1)
    lacking = max(lacking, (policy.FEWEST_READINGS - resting) * each)
    has_stopped = tail.is_exact and tail.rest < tail.span
    if has_stopped and not tail.is_flat and _rises_on_slowly(series, tail):
        return _concluded(series, Reason.SETTLING, tail.begin, tail.span)
    if (tail.is_flat or has_stopped) and lacking <= 0:
        reason = Reason.STOPPED if has_stopped or not is_whole else Reason.NO_TREND
        return _concluded(series, reason, tail.begin)
    lacking = max(lacking, each)
    if tail.is_flat and resting < policy.FEWEST_READINGS and _is_jump(series):
        return _concluded(series, Reason.SHORT_RISE, float(series.x[0]), lacking)
    if tail.is_flat or (has_stopped and resting >= policy.FEWEST_READINGS):
        return _concluded(series, Reason.SHORT_REST, tail.begin, lacking)
    return _concluded(series, Reason.SCATTERED, tail.begin, _until_clear(tail))


def _rises_on_slowly(series: Series, tail: Tail) -> bool:
    """Return whether what seems to rest, for all that readings scatter, gained a considerable part
    of what growth as before would have brought.
    """
    x, y = series.kept_since(tail.begin)
    at = int(np.searchsorted(x, x[-1] - tail.rest))
    before, since = float(y[at] - y[0]), float(y[-1] - y[at])
    if since <= max(series.noise, policy.STEP_SHARE * series.rise):
        return False
    as_before = before / float(x[at] - x[0]) * tail.rest if x[at] > x[0] else 0.0
    return since > policy.CONSIDERABLE_SHARE * as_before


def _is_jump(series: Series) -> bool:
    """Return whether all that was gained came in fewer rises than growth takes.

    Two readings that are alike after it are a rest such as lies between the steps of a staircase.
    """
    rises = int((np.diff(series.least) > series.step(series.rise)).sum())
    return 0 < rises < policy.FEWEST_RISES


def _half_rates(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Return the rates of the first and the second half of a stretch of work.

    A half whose readings span less than half of it is extended to the middle, where the series is
    taken to lie on the line between its neighbours.
    """
    if len(x) < 2:
        return 0.0, 0.0
    middle, half = (x[0] + x[-1]) / 2, (x[-1] - x[0]) / 2
    at = int(np.searchsorted(x, middle, side="right"))
    center = np.array([middle]), np.array([np.interp(middle, x, y)])
    first, second = (x[:at], y[:at]), (x[at:], y[at:])
    if np.ptp(first[0]) < half / 2:
        first = np.append(first[0], center[0]), np.append(first[1], center[1])
    if at == len(x) or np.ptp(second[0]) < half / 2:
        second = np.append(center[0], second[0]), np.append(center[1], second[1])
    return theil_sen(*first).rate, theil_sen(*second).rate


def _until_clear(tail: Tail) -> float:
    """Return how much more work brings a scattered trend out of its scatter, or shows it flat.

    The interval of a slope narrows with the work to the power of 1.5.
    """
    width = tail.slope.high - tail.slope.rate
    if tail.slope.rate <= 0 or width <= 0:
        return tail.span
    times = float((width / tail.slope.rate) ** (2 / 3))
    return tail.span * max(times - 1, policy.CONSIDERABLE_SHARE)


def _further(series: Series, work: float) -> float | None:
    """Return an amount of work to wait for; None for more than anybody waits for."""
    return work if work <= policy.HORIZON * series.span else None


def _concluded(
    series: Series,
    reason: Reason,
    begin: float,
    lacking: float | None = None,
) -> Trend:
    """Return a conclusion about the tail from some work on; ``lacking`` work would decide."""
    verdict = TrendVerdict.BOUNDED if reason in _ENDED else TrendVerdict.INCONCLUSIVE
    x, y = series.kept_since(begin)
    slope = theil_sen(x, y)
    late = _half_rates(x, y)[1] if reason is Reason.SLOWING else slope.rate
    first = float(y[0]) if len(y) else 0.0
    return Trend(
        verdict=TrendVerdict.GROWING if reason in _GROWS else verdict,
        reason=reason,
        bytes_per_unit=slope.rate,
        interval=(slope.low, slope.high),
        unit="",
        points=len(x),
        net_bytes=float(y[-1] - y[0]) if len(y) else 0.0,
        gained_before=first - float(series.kept_y[0]) if len(series.kept_y) else 0.0,
        tail_from=float(x[0]) if len(x) else begin,
        late_bytes_per_unit=late,
        more_work=None if lacking is None else _further(series, lacking),
    )


def judge(x: FloatArray, y: FloatArray, *, unit: str, noise: float) -> Trend:
    """Return what ``judge_growth`` does, with the unit that ``x`` counts."""
    return msgspec.structs.replace(judge_growth(x, y, noise=noise), unit=unit)


def kept_in_tail(x: FloatArray, y: FloatArray, noise: float, trend: Trend) -> BoolArray:
    """Return which readings of a series are kept in the tail of its trend: teeth lie between."""
    kept_x, _ = Series.of(x, y, noise).kept_since(trend.tail_from)
    return np.isin(x, kept_x)


def part_of(trend: Trend, share: float) -> Trend:
    """Return the trend of a part of a series that grows as the whole does."""
    low, high = trend.interval
    return msgspec.structs.replace(
        trend,
        bytes_per_unit=trend.bytes_per_unit * share,
        interval=(low * share, high * share),
        net_bytes=trend.net_bytes * share,
    )
