"""The charts of the reports: memory over the run, a culprit's series, two runs laid over each
other.

A line joins readings only where they lie near enough to each other. No text of the user's enters a
drawing: names and units stand next to it, in the page.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from leakscope.model.explanation import DeviceCourse
from leakscope.model.report import Culprit, Line, PhaseSpan, Timeline
from leakscope.report.svg import (
    Canvas,
    Drawing,
    Margins,
    Tick,
    byte_levels,
    clock_ticks,
    count_ticks,
    second_ticks,
)
from leakscope.report.text import humane_bytes

NEIGHBOURS = 3
"""So many boundaries may lie between two readings that are joined."""
UNSEEN = 1 / 300
"""A gap of this part of a run is narrower than what a drawing of it can show."""

Points = Sequence[tuple[float, float]]


def moments_of(lines: Sequence[Line]) -> list[float]:
    """Return when the gauge was read that was read most often: the boundaries one knows of."""
    longest = max((line.points for line in lines), key=len, default=[])
    return [second for second, _ in longest]


def restarts_of(points: Points, moments: Sequence[float]) -> list[int]:
    """Return the places of the readings that no line joins to the one before.

    Some gauges cost too much to be read at every boundary: what lies between two of their
    readings nobody knows. ``moments`` are the seconds at which there were boundaries.
    """
    if not len(moments) or not np.isfinite([moments[0], moments[-1]]).all():
        return []
    shortest = (moments[-1] - moments[0]) * UNSEEN
    return [
        place
        for place, ((before, _), (after, _)) in enumerate(pairwise(points), 1)
        if after - before > shortest
        and bisect_left(moments, after) - bisect_right(moments, before) > NEIGHBOURS
    ]


def stretches_of(points: Points, begins: Sequence[int]) -> list[Points]:
    """Return the readings cut where a new stretch begins."""
    edges = [0, *begins, len(points)]
    return [points[i:j] for i, j in pairwise(edges) if j > i]


WIDE = (740, 330)
NARROW = (360, 260)
SMALL = (400, 200)
SECONDS = "s"
CLOCK = "clock"
FEW = 60
"""So many points are drawn one by one."""
FINEST = 900
"""A stretch of an axis shorter than this part of it can't be seen."""
MOST_EPOCHS = 80
"""More aren't marked: their lines would be all there is to see."""
PHASE_SHADES = 5
TRAIN = "train"
NEUTRAL = "phase-1"
SERIES_SHADES = 6
DASHES = ("", "5 3", "1.5 2.5", "8 2.5 1.5 2.5", "12 3", "8 2 1.5 2 1.5 2")
"""Lengths of strokes and gaps: how lines are drawn whose colours come again."""
SIDE_DASHES = {"before": DASHES[1], "after": DASHES[0]}
"""Of two runs over each other."""
NEAR_ZERO = 0.2
"""An axis that would begin within this part of its length begins at zero."""
LIMIT_IN_SIGHT = 2.5
"""The limit is drawn where it is at most so many times the highest point."""
EPOCHS_APART = 30
"""Pixels between the numbers of two epochs, at least."""
CENSUS_HEIGHT = 0.018
"""Part of the plane that the tick of a census is high."""
_TIMELINE = Margins(left=62, right=14, top=14, bottom=30)
_MARKED = Margins(left=62, right=18, top=18, bottom=30)
_SERIES = Margins(left=60, right=16, top=12, bottom=28)

TicksOf = Callable[[tuple[float, float], int], list[Tick]]
"""Returns the ticks of a stretch of an axis, at most about so many."""


@dataclass(frozen=True)
class PlotLine:
    """A line to draw: its points and the CSS variable of its colour."""

    points: Points
    shade: str
    dash: str = ""
    """Lengths of strokes and gaps; empty where it is drawn through."""


def draw_timeline(
    timeline: Timeline, key: str, size: tuple[int, int], laid_over: PlotLine | None = None
) -> Drawing:
    """Return memory over the run: phases shaded, censuses ticked, one more line over all."""
    moments = moments_of(timeline.lines)
    lines = [
        [
            PlotLine(stretch, series_shade(i), series_dash(i))
            for stretch in stretches_of(points, restarts_of(points, moments))
        ]
        for i, points in enumerate(finite(line.points) for line in timeline.lines)
    ]
    drawn = [track.points for tracks in lines for track in tracks]
    view = _canvas(size, _TIMELINE, drawn, clock_ticks, limit=timeline.limit_bytes)
    _shade_phases(view, timeline.spans, shown_stretch(timeline.lines))
    _mark_epochs(view, epoch_starts(timeline))
    for tracks in reversed(lines):
        for track in tracks:
            _draw_track(view, track, filled=tracks is lines[0])
    if laid_over is not None:
        _draw_track(view, laid_over, dotted=len(laid_over.points) <= FEW)
    if timeline.limit_bytes is not None and timeline.limit_bytes <= view.y[1]:
        view.ceiling(timeline.limit_bytes, f"limit {humane_bytes(timeline.limit_bytes)}")
    view.uprights(finite_only(timeline.censuses_s), "census", CENSUS_HEIGHT)
    return view.finish(key, "Memory over the run, with its phases shaded")


def draw_overlay(
    before: Points,
    after: Points,
    key: str,
    size: tuple[int, int],
    *,
    axis: str,
    spans: Sequence[PhaseSpan] = (),
    epochs: Sequence[tuple[float, int]] = (),
    ticks: TicksOf | None = None,
) -> Drawing:
    """Return the same thing in two runs over one axis: the clock, or what ``axis`` counts.

    ``ticks`` returns what to write below an axis that isn't as even as its count.
    """
    tracks = [
        PlotLine(finite(points), name, "" if size == SMALL else SIDE_DASHES[name])
        for points, name in ((before, "before"), (after, "after"))
        if points
    ]
    ticks_of = ticks or (clock_ticks if axis == CLOCK else count_ticks)
    view = _canvas(size, _TIMELINE, [track.points for track in tracks], ticks_of)
    _shade_phases(view, spans, view.x)
    _mark_epochs(view, epochs)
    for track in tracks:
        _draw_track(view, track)
        if len(track.points) <= FEW:
            view.marks(track.points, track.shade, "squares" if track.shade == "before" else "dots")
    return view.finish(key, "Before and after the change")


def draw_ranks(courses: Sequence[Points], key: str, size: tuple[int, int]) -> Drawing:
    """Return memory of several ranks by step, each in the colour of its place."""
    tracks = [
        PlotLine(finite(points), series_shade(i), series_dash(i))
        for i, points in enumerate(courses)
    ]
    view = _canvas(size, _MARKED, [track.points for track in tracks], count_ticks)
    for track in reversed(tracks):
        _draw_track(view, track)
    return view.finish(key, "Memory of ranks by step")


def draw_series(culprit: Culprit, key: str, spans: Sequence[PhaseSpan]) -> Drawing:
    """Return a culprit's bytes at each census: its fitted rate, or the phases it climbs in."""
    points = finite((point.x, point.y) for point in culprit.chart)
    over_time = culprit.chart_unit == SECONDS
    view = _canvas(SMALL, _SERIES, [points], clock_ticks if over_time else count_ticks, most=6)
    if over_time:
        within = [span for span in spans if span.phase == culprit.phase]
        _shade_phases(view, within, colour="phase-2")
    if is_fitted(culprit) and len(points) > 1:
        _draw_fit(view, points, culprit.bytes_per_unit, culprit.interval)
    if len(points) > FEW or not is_fitted(culprit):
        view.line(points, "point")
    if len(points) <= FEW:
        view.marks(points, "point")
    return view.finish(key, "What the culprit retained at each census")


def draw_course(course: DeviceCourse, key: str, size: tuple[int, int]) -> Drawing:
    """Return live and reserved bytes along a history, its peak and its failure marked."""
    live, reserved = finite(course.live), finite(course.reserved)
    ticks_of = second_ticks if course.unit == SECONDS else count_ticks
    fault = [course.fault] if course.fault else []
    view = _canvas(size, _MARKED, [live, reserved, fault], ticks_of)
    _shade_phases(view, course.spans)
    view.line(_stepped(reserved), "series-2")
    view.line(_stepped(live), "series-1", area=True)
    if course.peak is not None:
        view.marks([course.peak], "ink")
    if course.fault is not None:
        view.marks([course.fault], "limit", "crosses")
    return view.finish(key, "Live and reserved memory along the history")


def shown_stretch(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the first and the last moment of lines that have any."""
    moments = [x for line in lines for x, _ in finite(line.points)]
    return min(moments), max(moments)


def too_short(spans: Sequence[PhaseSpan], shown: tuple[float, float]) -> dict[str, float]:
    """Return how long each phase lasts that is too short to be seen on so much of an axis."""
    lasted: dict[str, list[float]] = {}
    for span in spans:
        lasted.setdefault(span.phase, []).append(span.end_s - span.start_s)
    usual = {phase: median(lengths) for phase, lengths in lasted.items()}
    least = (shown[1] - shown[0]) / FINEST
    return {phase: length for phase, length in usual.items() if length < least}


def epoch_starts(timeline: Timeline) -> list[tuple[float, int]]:
    """Return when the epochs began, each with its number, from 1 on; of very many only some.

    Where a report doesn't list them, each began with the first of its phases.
    """
    starts = {epoch: start for start, epoch in timeline.epochs}
    if not starts:
        for span in timeline.spans:
            starts.setdefault(span.epoch, span.start_s)
    return [(start, epoch + 1) for epoch, start in starts.items()] if len(starts) > 1 else []


def is_fitted(culprit: Culprit) -> bool:
    """Return whether the rate can be drawn through the series: both count the same unit."""
    return culprit.growth == "across" and culprit.chart_unit == culprit.unit


def series_shade(index: int) -> str:
    """Return the CSS variable for the so-manieth line."""
    return f"series-{index % SERIES_SHADES + 1}"


def series_dash(index: int, *, laid_over: bool = False) -> str:
    """Return how the so-manieth line is dashed: no two lines share both colour and dash.

    Lines that are laid over others, and come after them, are dashed from the first on.
    """
    return DASHES[(index // SERIES_SHADES + laid_over) % len(DASHES)]


def phase_shades(spans: Sequence[PhaseSpan]) -> dict[str, str]:
    """Return the CSS variable for each phase, in the order in which they first began.

    The neutral one is training's alone: it is nearly all of a chart, whatever came before it.
    """
    phases = dict.fromkeys(span.phase for span in spans)
    others = [phase for phase in phases if phase != TRAIN]
    shades = {phase: f"phase-{i % (PHASE_SHADES - 1) + 2}" for i, phase in enumerate(others)}
    return {phase: shades.get(phase, NEUTRAL) for phase in phases}


def finite(points: Any) -> list[tuple[float, float]]:
    """Return the points that can be drawn."""
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def finite_only(moments: Sequence[float]) -> list[float]:
    """Return the moments that can be drawn."""
    return [moment for moment in moments if math.isfinite(moment)]


def limit_in_sight(top: float, limit: int | None) -> bool:
    """Return whether a limit is near enough to be drawn with a series of this height."""
    return limit is not None and 0 < limit <= top * LIMIT_IN_SIGHT


def _canvas(
    size: tuple[int, int],
    margins: Margins,
    tracks: Sequence[Points],
    ticks_of: TicksOf,
    *,
    limit: int | None = None,
    most: int = 0,
) -> Canvas:
    """Return a chart that shows all these points, from zero up, its amounts and moments named.

    ``most`` is how many ticks its foot has room for; 0 is by its size.
    """
    points = [point for track in tracks for point in finite(track)]
    top = max((y for _, y in points), default=0.0)
    if limit_in_sight(top, limit):
        top = float(limit or 0)
    left = min((x for x, _ in points), default=0.0)
    right = max((x for x, _ in points), default=0.0)
    if 0 < left < right * NEAR_ZERO:
        left = 0.0
    levels = byte_levels(top)
    view = Canvas(size, margins, (left, right if right > left else left + 1), (0, levels.ceiling))
    view.levels(levels.ticks)
    view.moments(ticks_of(view.x, most or (7 if size == WIDE else 4)))
    return view


def _shade_phases(
    view: Canvas,
    spans: Sequence[PhaseSpan],
    shown: tuple[float, float] | None = None,
    colour: str | None = None,
) -> None:
    """Shade all phases, or those that can be seen on what is ``shown``."""
    left, right = view.x
    bare = too_short(spans, shown) if shown else {}
    for phase, own in phase_shades(spans).items():
        if phase in bare:
            continue
        stretches = _merged([s for s in spans if s.phase == phase], (right - left) / FINEST)
        inside = [(max(start, left), min(end, right)) for start, end in stretches]
        view.blocks([(start, end) for start, end in inside if end > start], colour or own)


def _mark_epochs(view: Canvas, starts: Sequence[tuple[float, int]]) -> None:
    if 0 < len(starts) <= MOST_EPOCHS:
        left, right = view.x
        inside = [(start, f"{epoch}") for start, epoch in starts if left <= start <= right]
        view.begins(inside, EPOCHS_APART)


def _merged(spans: Sequence[PhaseSpan], gap: float) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda s: s.start_s):
        if joined and span.start_s - joined[-1][1] < gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], span.end_s))
        else:
            joined.append((span.start_s, span.end_s))
    return joined


def _draw_track(
    view: Canvas, track: PlotLine, *, filled: bool = False, dotted: bool = False
) -> None:
    points = finite(track.points)
    view.line(points, track.shade, track.dash, area=filled)
    if dotted or len(points) == 1:
        view.marks(points, track.shade)


def _stepped(points: Points) -> list[tuple[float, float]]:
    """Return points as the corners of steps: each value holds until the next."""
    corners = [(x, y) for (_, y), (x, _) in pairwise(points)]
    return [place for both in zip(points, corners, strict=False) for place in both] + [*points[-1:]]


def _draw_fit(view: Canvas, points: Points, rate: float, interval: tuple[float, float]) -> None:
    if not all(map(math.isfinite, (rate, *interval))):
        return
    centre_x = median(x for x, _ in points)
    centre_y = median(y for _, y in points)
    ends = [points[0][0], centre_x, points[-1][0]]

    def along(slope: float) -> list[tuple[float, float]]:
        return [(x, centre_y + slope * (x - centre_x)) for x in ends]

    low, high = map(along, interval)
    view.band(low, high)
    view.line(along(rate), "fit")
