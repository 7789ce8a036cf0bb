"""Growth per event: does a series grow with saves, compilations and the like, or with the work?

What is kept is regressed, from reading to reading, on the work and on the events that were counted
there: no rate is below zero, at most two are above it, and the fit is by least absolute deviations
with the growth model's cost for each, so that a jump or a warm-up weighs as one reading.

One counter's rate is a weighted median. Of two counters the best fit passes through two of the
rises exactly, as one of least absolute deviations does, so pairs of rises are tried. An event is
preferred to the work only where it explains the series better by a margin; what explains it as well
can't be separated from it here. No verdict is changed by that: it says with what something grows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakscope.analysis.columns.series import BoundaryTable, FloatArray, IntArray, code_of
from leakscope.analysis.columns.units import epochs, is_training
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.shape import ROUNDING, thinned
from leakscope.model import gauge
from leakscope.model.boundary import SERVED, BoundaryKind, Event

_MOST_PIVOTS = 24
"""Rises of one kind through which a fit of two rates is tried to pass."""
_NO_CANDIDATES = frozenset(
    {
        Event.SAVED_FILE,
        Event.COLLECTION_0,
        Event.COLLECTION_1,
        Event.COLLECTION_2,
        Event.EVALUATION,
        Event.EXPLICIT_COLLECTION,
        Event.NEW_SHAPE,
        Event.ITERATION,
    }
)
"""Events that are no candidates by themselves: parts of another, what no recording counts, or, as
collections that come by themselves are, what follows from growth."""


@dataclass(frozen=True)
class Regressor:
    """Something that growth may go with, and how often it had happened at each reading."""

    name: str
    done: FloatArray
    is_work: bool = False
    """Whether it is a unit of work; else it is an event."""
    place: tuple[str, int] | None = None
    """Of passes through a loop: the file and the line where it begins."""

    @property
    def total(self) -> float:
        """How often it happened from the first reading to the last."""
        return float(self.done[-1] - self.done[0])


@dataclass(frozen=True)
class CounterRate:
    """What a series gains with each of something that is counted."""

    counter: Regressor
    rate: float
    share: float
    """Part of what the series gained."""


@dataclass(frozen=True)
class EventFit:
    """With what a series grows."""

    rates: tuple[CounterRate, ...]
    """One or two, what brings most first."""
    work: CounterRate
    """That of the unit of work alongside them; 0 where it brings nothing."""
    is_by_event: bool
    """Whether an event explains the series better than any work does, or other work better than the
    unit of its rate."""
    indistinct: tuple[Regressor, ...]
    """Other counters that explain it as well as the first: this run can't tell them apart."""


def fit_events(y: FloatArray, counters: list[Regressor], noise: float) -> EventFit | None:
    """Return what a series grows with; None where it doesn't grow, or nothing was counted.

    Args:
        y: What is kept at each reading.
        counters: The unit of work of its rate, then other work, then events.
        noise: Changes up to this much mean nothing, in the unit of y.

    """
    gained = float(y[-1] - y[0]) if len(y) else 0.0
    # A unit of time is counted in whole minutes, of which a short run has few.
    moving = [each for each in counters[:1] if each.total > 0]
    moving += [each for each in counters[1:] if each.total >= policy.FEWEST_RISES]
    has_events = any(not counter.is_work for counter in moving)
    if len(y) <= policy.FEWEST_READINGS or gained <= noise or not has_events:
        return None
    rises = np.diff(y)
    costs = _Costs(rises, noise)
    tried, steps, alone, single = _by_name(moving, rises, costs)
    best = _preferred(single, tried)
    places, found, cost = [best], [alone[best]], single[best]
    alike = [tried[n] for n in _within(single, cost) if n != best]
    is_served = tried[best].name in SERVED
    if not is_served and (pair := _pair(rises, steps, single, costs, tried)):
        places, found, cost, alike = [*pair.places], [*pair.rates], pair.cost, pair.alike
    rates = [
        CounterRate(tried[place], rate, rate * tried[place].total / gained)
        for place, rate in zip(places, found, strict=True)
    ]
    unit, has_event = counters[0].name, any(not rate.counter.is_work for rate in rates)
    rivals = [
        each
        for each, counter in zip(single, tried, strict=True)
        if (counter.is_work if has_event else counter.name == unit)
    ]
    is_better = is_served or cost + policy.BREAK_COST <= min(rivals, default=np.inf)
    is_by_event = is_better and _are_others(rates, unit, has_event=has_event)
    rates.sort(key=lambda rate: -rate.share)
    work = next((rate for rate in rates if rate.counter.name == counters[0].name), None)
    return EventFit(
        rates=tuple(rates),
        work=work or CounterRate(counters[0], 0.0, 0.0),
        is_by_event=is_by_event,
        indistinct=tuple(alike),
    )


def counters_at(track: BoundaryTable, unit: str, done: FloatArray, at: IntArray) -> list[Regressor]:
    """Return what growth may go with, as counted at some measurements; several may share a name.

    The unit of work of the growth's rate comes first, of which so much was done there. Of a
    recording that counts no events it is the work alone, with the passes through a loop.
    """
    found = [Regressor(unit, done, is_work=True)]
    if track.loop is not None:
        passes, place = track.loop.passes[at], track.loop.place
        found.append(Regressor(Event.ITERATION.value, passes, place=place))
    if not track.counts_events:
        return found
    if track.step.any():
        found.append(Regressor("step", track.step[at].astype(np.float64), is_work=True))
    found.append(Regressor("epoch", epochs(track).done[at], is_work=True))
    for phase in track.phases:
        name = "epoch" if is_training(phase) else phase
        if not is_training(phase) and phase.partition(":")[0] == unit:
            name = unit
        is_work = name in {"epoch", unit}
        found += [Regressor(name, passes, is_work=is_work) for passes in _passes(track, phase, at)]
    names = [event.value for event in Event if event not in _NO_CANDIDATES]
    names += [Event.SAVED_FILE.value] if track.is_timed else []
    found += [Regressor(name, track.events(name)[at]) for name in names if track.has_event(name)]
    found += _late(track, at) + _explicit_collections(track, at)
    if track.has_event(Event.NEW_SHAPE.value):
        found.append(Regressor(Event.NEW_SHAPE.value, track.events(Event.NEW_SHAPE.value)[at]))
    known = track.known(gauge.SHAPES)
    if len(known) >= len(at):
        shapes = np.interp(at, known, track.gauge(gauge.SHAPES)[known])
        found.append(Regressor(Event.NEW_SHAPE.value, shapes))
    return found


def _late(track: BoundaryTable, at: IntArray) -> list[Regressor]:
    """Return asynchronous saves as they may arrive: what one keeps is seen after it was begun."""
    name = Event.ASYNC_SAVE.value
    if not track.has_event(name):
        return []
    begun = track.events(name)
    return [
        Regressor(name, begun[np.maximum(at - late, 0)])
        for late in range(1, policy.LATEST_SAVE_READINGS + 1)
    ]


def _explicit_collections(track: BoundaryTable, at: IntArray) -> list[Regressor]:
    """Return the program's calls of the collector: a gauge that is read whenever it has changed."""
    known = track.known(gauge.GC_EXPLICIT)
    counts = np.concatenate([[0.0], track.gauge(gauge.GC_EXPLICIT)[known]])
    explicit = counts[np.searchsorted(known, at, side="right")]
    return [Regressor(Event.EXPLICIT_COLLECTION.value, explicit)] if len(known) else []


def _passes(track: BoundaryTable, phase: str, at: IntArray) -> list[FloatArray]:
    """Return the passes through a phase that had ended at each reading, and at the one before;
    those that had begun; and those after which another had come or was to come.

    What follows a pass, as the lines after its loop, is seen after the boundary that ends it. What
    prepares the next, as a callback's hooks, is seen before the boundary that begins that, and
    after the last pass there is none.
    """
    ended = track.completed(phase)[at].astype(np.float64)
    is_inside = track.phase[at] == track.phase_code(phase)
    is_end = track.kind[at] == code_of(BoundaryKind.PHASE_END)
    counts = (
        ended,
        ended - (is_inside & is_end),
        ended + (is_inside & ~is_end),
        np.minimum(ended, ended.max(initial=0.0) - 1),
    )
    return [np.maximum.accumulate(count) if len(at) else count for count in counts]


class _Costs:
    """What a fit costs, in the growth model's units: deviations, and each rate that it needs."""

    def __init__(self, rises: FloatArray, noise: float) -> None:
        self._count = len(rises)
        usual = policy.STEP_SHARE * float(np.abs(rises).mean())
        self._scale = max(noise, usual, float(np.finfo(float).tiny))

    def of(self, off: float, rates: int) -> float:
        fit = self._count * float(np.log1p(off / (self._count * self._scale)))
        return fit + policy.BREAK_COST * rates


def _by_name(
    counters: list[Regressor], rises: FloatArray, costs: _Costs
) -> tuple[list[Regressor], FloatArray, list[float], list[float]]:
    """Return counters, their steps, rates and costs alone; of those of one name the best."""
    best: dict[str, tuple[float, Regressor, FloatArray, float]] = {}
    for counter in counters:
        steps = np.diff(counter.done)
        rate = _single_rate(rises, steps)
        cost = costs.of(_off(rises, [steps], [rate]), 1)
        if counter.name not in best or cost < best[counter.name][0]:
            best[counter.name] = cost, counter, steps, rate
    chosen = list(best.values())
    return (
        [counter for _, counter, _, _ in chosen],
        np.array([steps for _, _, steps, _ in chosen]),
        [rate for *_, rate in chosen],
        [cost for cost, *_ in chosen],
    )


def _off(rises: FloatArray, steps: list[FloatArray], rates: list[float]) -> float:
    explained = sum(rate * row for rate, row in zip(rates, steps, strict=True))
    return float(np.abs(rises - explained).sum())


def _single_rate(rises: FloatArray, steps: FloatArray) -> float:
    """Return the rate, not below zero, that explains rises best: a median weighted by the steps."""
    moved = steps > 0
    if not moved.any():
        return 0.0
    each, weight = rises[moved] / steps[moved], steps[moved]
    order = np.argsort(each)
    reached = np.cumsum(weight[order])
    half = reached[-1] / 2
    low = int(np.searchsorted(reached, half))
    high = int(np.searchsorted(reached, half, side="right"))
    middle = (each[order][low] + each[order][min(high, len(order) - 1)]) / 2
    return max(float(middle), 0.0)


def _preferred(costs: list[float], counters: list[Regressor]) -> int:
    """Return the counter that explains best; of those that do as well what is served comes first,
    then other work, then other events.
    """
    alike = _within(costs, min(costs))
    return min(alike, key=lambda n: (counters[n].name not in SERVED, not counters[n].is_work))


def _within(costs: list[float], least: float) -> list[int]:
    return [n for n, cost in enumerate(costs) if cost <= least + policy.ALIKE_COST]


def _are_others(rates: list[CounterRate], unit: str, *, has_event: bool) -> bool:
    """Return whether rates account for the growth, and those of events, where there are any, or of
    other work than the unit for most of that.
    """
    whole = sum(rate.share for rate in rates)
    by_others = sum(
        rate.share
        for rate in rates
        if (not rate.counter.is_work if has_event else rate.counter.name != unit)
    )
    is_whole = policy.MAIN_SHARE <= whole <= 1 / policy.MAIN_SHARE
    return is_whole and by_others >= policy.MOST_SHARE * whole


@dataclass(frozen=True)
class _Pair:
    """Two counters that explain a series together, and their rates."""

    places: tuple[int, int]
    rates: tuple[float, float]
    cost: float
    alike: list[Regressor]
    """What would do as well in the place of one of them."""


def _pair(
    rises: FloatArray,
    steps: FloatArray,
    single: list[float],
    costs: _Costs,
    counters: list[Regressor],
) -> _Pair | None:
    """Return the two counters that explain a series best; None where one alone does as well.

    One of the two is work, or among the best by itself.
    """
    least = min(single)
    if least < 2 * policy.BREAK_COST + policy.ALIKE_COST:
        return None
    leading = np.argsort(single, kind="stable")[: policy.LEADING_COUNTERS].tolist()
    starts = [n for n, counter in enumerate(counters) if counter.is_work or n in leading]
    every = range(len(counters))
    pairs = dict.fromkeys((min(n, o), max(n, o)) for n in starts for o in every if n != o)
    found: list[tuple[float, tuple[int, int], tuple[float, float]]] = []
    gained = float(rises.sum())
    for first, other in pairs:
        both = [steps[first], steps[other]]
        rates = _rates_together(rises, *both)
        if rates is None:
            continue
        parts = [rate * float(row.sum()) / gained for rate, row in zip(rates, both, strict=True)]
        if min(parts) >= policy.LITTLE_SHARE:
            found.append((costs.of(_off(rises, both, [*rates]), 2), (first, other), rates))
    most = min((cost for cost, *_ in found), default=np.inf) + policy.ALIKE_COST
    if most >= least:
        return None
    as_good = [each for each in found if each[0] <= most]
    cost, places, rates = max(as_good, key=lambda each: sum(counters[n].is_work for n in each[1]))
    others = dict.fromkeys(n for _, each, _ in as_good for n in each if n not in places)
    return _Pair(places, rates, cost, [counters[n] for n in others])


def _rates_together(
    rises: FloatArray, left: FloatArray, right: FloatArray
) -> tuple[float, float] | None:
    """Return two rates above zero that explain rises best together; None where there are none."""
    chosen = _pivots(left, right)
    first, second = (chosen[place] for place in np.triu_indices(len(chosen), 1))
    size = left[first] * right[second] - left[second] * right[first]
    scale = max(float(np.abs(left).max() * np.abs(right).max()), np.finfo(float).tiny)
    apart = np.abs(size) > ROUNDING * scale
    first, second, size = first[apart], second[apart], size[apart]
    a = (rises[first] * right[second] - rises[second] * right[first]) / size
    b = (left[first] * rises[second] - left[second] * rises[first]) / size
    above = (a > 0) & (b > 0)
    if not above.any():
        return None
    a, b = a[above], b[above]
    explained = a[:, None] * left[None, :] + b[:, None] * right[None, :]
    place = int(np.argmin(np.abs(rises[None, :] - explained).sum(axis=1)))
    return float(a[place]), float(b[place])


def _pivots(left: FloatArray, right: FloatArray) -> IntArray:
    """Return the rises through which a fit of two may pass, evenly from those that each moves."""
    both = np.flatnonzero((left > 0) & (right > 0))
    single = np.flatnonzero((left > 0) != (right > 0))
    return np.union1d(thinned(both, _MOST_PIVOTS), thinned(single, _MOST_PIVOTS))
