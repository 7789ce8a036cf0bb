"""The axis that two runs share: by step, with room for what lies between two steps.

A step is one wide. What the steps stop for, a validation as a rule, is as wide as it has batches,
so that a climb inside can be seen, and lies at the same place in both runs. All of it together gets
at least a quarter and at most half of the axis. Where the epochs of one run have more steps, as
with another batch size, epochs lie over each other instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import numpy as np

from leakscope.analysis.columns.units import is_training
from leakscope.analysis.compare.work import by_step
from leakscope.model.comparison import Comparison, RunCost
from leakscope.model.report import PhaseSpan, Point, Timeline
from leakscope.report.svg import Tick, count_ticks

LEAST_SHARE = 1 / 3
"""Of the steps' width: what pauses get together at least."""
MOST_SHARE = 1.0
GAP_WIDTH = 0.25
"""So much of a step lies before each pause."""
_PER_STEP = 0.5
"""A phase that comes with so many of the steps is a part of them."""

STEP, EPOCH = "step", "epoch"

Points = list[tuple[float, float]]
Slot = tuple[float, str, int]
"""A pause: how far the steps had come, of which phase, the so-manieth of it there."""


@dataclass(frozen=True)
class SharedAxis:
    """Where the moments of two runs lie."""

    clocks: tuple[Points, Points]
    """Of each run: seconds, and the place on the axis; empty where it has no timeline."""
    steps: Points
    """Places, and how many steps or epochs had ended there: both go up, these with halts."""
    unit: str = STEP
    """What is counted: steps, or epochs."""
    moments: tuple[dict[int, float], dict[int, float]] = field(default_factory=lambda: ({}, {}))
    """Of each run: when its boundaries were, by number."""

    @property
    def has_pauses(self) -> bool:
        """Whether something between two steps has room of its own."""
        return len(self.steps) > 3

    def places(self, side: int, seconds: Sequence[float]) -> list[float]:
        """Return where moments of a run lie."""
        return _along(self.clocks[side], seconds)

    def of_boundaries(self, side: int, points: Sequence[Point]) -> Points | None:
        """Return a series where its boundaries lie; None where not all of these are known."""
        when = self.moments[side]
        if any(point.boundary not in when for point in points):
            return None
        places = self.places(side, [when[point.boundary] for point in points]) if points else []
        return list(zip(places, (point.y for point in points), strict=True))

    def place_of(self, step: float) -> float:
        """Return where a step has ended, before what comes after it."""
        places, steps = zip(*self.steps, strict=True)
        after = int(np.searchsorted(steps, step))
        if after in (0, len(steps)):
            return float(places[min(after, len(steps) - 1)])
        share = (step - steps[after - 1]) / (steps[after] - steps[after - 1])
        return float(places[after - 1] + share * (places[after] - places[after - 1]))

    def ticks(self, shown: tuple[float, float], most: int) -> list[Tick]:
        """Return where round steps have ended on a stretch of the axis, and their numbers."""
        first, last = _along(self.steps, shown)
        ended = [
            Tick(self.place_of(step.at), step.text) for step in count_ticks((first, last), most)
        ]
        return [tick for tick in ended if shown[0] <= tick.at <= shown[1]]


def shared_axis(comparison: Comparison) -> SharedAxis | None:
    """Return the axis of two runs, None where not both of those that were measured count steps."""
    timelines = (comparison.before_timeline, comparison.after_timeline)
    measured = [t for t in timelines if t is not None and any(line.points for line in t.lines)]
    if not measured or not all(timeline.steps for timeline in measured):
        return None
    costs = (comparison.before_cost, comparison.after_cost)
    paces, each = _paces(timelines)
    pauses = [_pauses(t, pace) if t else {} for t, pace in zip(timelines, paces, strict=True)]
    ends_at = [
        (_far(pace, math.floor(t.steps[0][1])), _far(pace, math.floor(t.steps[-1][1])))
        for t, pace in zip(timelines, paces, strict=True)
        if t in measured and t is not None
    ]
    first, last = min(begin for begin, _ in ends_at), max(end for _, end in ends_at)
    widths = _widths(pauses, costs, max(1.0, last - first))
    ends = _ends(widths)
    clocks = [
        _clock(timeline, pace, own, ends) if timeline else []
        for timeline, pace, own in zip(timelines, paces, pauses, strict=True)
    ]
    moments = [{m.boundary: m.time_s for m in t.moments} if t else {} for t in timelines]
    halts = [(place, step / (each or 1.0)) for place, step in _halts(widths, last)]
    unit = EPOCH if each else STEP
    return SharedAxis((clocks[0], clocks[1]), halts, unit, (moments[0], moments[1]))


def _paces(timelines: Sequence[Timeline | None]) -> tuple[list[Points], float]:
    """Return how far steps take each run, and how wide an epoch is.

    A step is one wide, and epochs count for nothing, unless both runs have several and those of one
    have more steps.
    """
    begun = [_epochs_begun(timeline) if timeline else [] for timeline in timelines]
    if not all(len(starts) > 2 for starts in begun):
        return [[], []], 0.0
    usual = [median(b - a for a, b in pairwise(starts)) for starts in begun]
    each = float(max(usual))
    if min(usual) < 1 or usual[0] == usual[1]:
        return [[], []], 0.0
    return [[(float(at), each * epoch) for epoch, at in enumerate(own)] for own in begun], each


def _epochs_begun(timeline: Timeline) -> list[int]:
    """Return after how many steps each epoch began, and where the last would end by its usual
    length; nothing where only some are known.
    """
    if timeline.epochs_begun or len(timeline.epochs) < 2 or not timeline.steps:
        return []
    found = {
        span.epoch: span.steps[0]
        for span in reversed(timeline.spans)
        if is_training(span.phase) and span.steps is not None
    }
    numbers = [epoch for _, epoch in timeline.epochs]
    at = by_step([start for start, _ in timeline.epochs], timeline.steps)
    starts = [
        found.get(epoch, math.floor(step + 1e-9)) for epoch, step in zip(numbers, at, strict=True)
    ]
    starts[0] = math.floor(timeline.steps[0][1])
    last = math.floor(timeline.steps[-1][1])
    usual = median(b - a for a, b in pairwise(starts))
    return [*starts, max(last, starts[-1] + round(usual))]


def _far(pace: Points, step: float) -> float:
    """Return how far a step takes a run."""
    return _along(pace, [step])[0] if pace else float(step)


def _pauses(timeline: Timeline, pace: Points) -> dict[Slot, PhaseSpan]:
    """Return the phases between two steps; none where only some are known, or they are of steps."""
    if timeline.phases_begun or not timeline.steps:
        return {}
    spans = [span for span in timeline.spans if span.phase and not is_training(span.phase)]
    times = Counter(span.phase for span in spans)
    most = max(1.0, _PER_STEP * timeline.steps[-1][1])
    found: dict[Slot, PhaseSpan] = {}
    so_many: Counter[tuple[float, str]] = Counter()
    free_from = -math.inf
    for span in sorted(spans, key=lambda span: span.start_s):
        step, goes_on = _steps_around(span, timeline)
        if goes_on or times[span.phase] > most or not free_from <= span.start_s < span.end_s:
            continue
        far = _far(pace, step)
        found[far, span.phase, so_many[far, span.phase]] = span
        so_many[far, span.phase] += 1
        free_from = span.end_s
    return found


def _steps_around(span: PhaseSpan, timeline: Timeline) -> tuple[int, bool]:
    """Return after which step a phase began, and whether steps ended in it."""
    if span.steps is not None:
        return span.steps[0], span.steps[1] > span.steps[0]
    begin, end = by_step([span.start_s, span.end_s], timeline.steps)
    return math.floor(begin + 1e-9), end - begin >= 1


def _widths(
    pauses: Sequence[dict[Slot, PhaseSpan]], costs: Sequence[RunCost], steps: float
) -> dict[Slot, float]:
    """Return how wide each pause is, of both runs the one with more batches."""
    widths: dict[Slot, float] = {}
    for found, cost in zip(pauses, costs, strict=True):
        times = Counter(phase for _, phase, _ in found)
        for slot in found:
            batches = cost.work.batches.get(slot[1], 0) / times[slot[1]]
            widths[slot] = max(widths.get(slot, 0.0), batches, 1.0)
    total = sum(widths.values())
    wanted = min(max(total, LEAST_SHARE * steps), MOST_SHARE * steps)
    # In each gap one order holds: of the first run, then what the second has alongside it.
    ordered = sorted(widths, key=lambda slot: slot[0])
    return {slot: widths[slot] * wanted / total for slot in ordered}


def _ends(widths: dict[Slot, float]) -> dict[Slot, tuple[float, float]]:
    """Return where each pause begins and ends."""
    ends, before = {}, 0.0
    for slot, width in widths.items():
        begin = slot[0] + before + GAP_WIDTH
        ends[slot] = (begin, begin + width)
        before += GAP_WIDTH + width
    return ends


def _halts(widths: dict[Slot, float], last: float) -> Points:
    """Return the places between which the steps go on evenly, or halt."""
    gaps: dict[float, float] = {}
    for (step, _, _), width in widths.items():
        gaps[step] = gaps.get(step, 0.0) + GAP_WIDTH + width
    halts, before = [(0.0, 0.0)], 0.0
    for step, width in gaps.items():
        halts += [(step + before, float(step)), (step + before + width, float(step))]
        before += width
    return [*dict.fromkeys([*halts, (last + before, last), (last + before + 1.0, last)])]


def _clock(
    timeline: Timeline,
    pace: Points,
    pauses: dict[Slot, PhaseSpan],
    ends: dict[Slot, tuple[float, float]],
) -> Points:
    """Return when a run was where on the axis."""
    gaps = sorted({slot[0] for slot in ends})
    edges = {slot[0]: end for slot, (_, end) in ends.items()}
    before = [0.0, *(edges[step] - step for step in gaps)]
    own = {slot[0] for slot in pauses}
    clock = []
    for second, step in timeline.steps:
        whole = math.floor(step)
        far, beyond = _far(pace, whole), step - whole
        if not beyond or far not in own:
            passed = int(np.searchsorted(gaps, far, side="right" if beyond else "left"))
            part = beyond * (_far(pace, whole + 1) - far)
            clock.append((second, far + part + before[passed]))
    for slot, span in pauses.items():
        clock += zip((span.start_s, span.end_s), ends[slot], strict=True)
    clock.sort()
    last_moment = max((x for line in timeline.lines for x, _ in line.points), default=0.0)
    if clock and last_moment > clock[-1][0]:
        clock.append((last_moment, clock[-1][1] + GAP_WIDTH))
    highest = np.maximum.accumulate([place for _, place in clock]).tolist()
    return list(zip((second for second, _ in clock), highest, strict=True))


def _along(knots: Points, at: Sequence[float]) -> list[float]:
    xs, ys = zip(*knots, strict=True)
    found: list[float] = np.interp(at, xs, ys).tolist()
    return found
