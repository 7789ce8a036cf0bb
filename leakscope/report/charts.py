"""The charts of the report: memory over the run, a culprit's series, two runs laid over another.

No text of the user's enters a drawing: names and units stand beside it, in the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import FuncFormatter, MaxNLocator

from leakscope.analysis.timeline import keep_extremes
from leakscope.model.explanation import Course
from leakscope.model.report import Culprit, Line, PhaseSpan, Timeline
from leakscope.report.sizes import clock, humane_bytes, scale_of, unit_name
from leakscope.report.stretches import begins_anew, moments_of, stretches_of
from leakscope.report.svg import Canvas, Drawing, canvas, shade

WIDE = (740, 330)
NARROW = (360, 260)
SMALL = (400, 200)
SECONDS = "s"
CLOCK = "clock"
FEW = 60
"""So many points are drawn one by one."""
FINEST = 900
"""A stretch of an axis shorter than this part of it can't be seen."""
DRAWN = 1500
"""So many points of a line tell all that a drawing of this size can show."""
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
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)

Points = Sequence[tuple[float, float]]
TicksOf = Callable[[tuple[float, float], int], list[tuple[float, str]]]
"""Returns places and their names on a stretch of an axis, at most about so many."""


@dataclass(frozen=True)
class Track:
    """A line to draw: its points and the CSS variable of its colour."""

    points: Points
    shade: str
    dash: str = ""
    """Lengths of strokes and gaps; empty where it is drawn through."""


def draw_timeline(
    timeline: Timeline, key: str, size: tuple[int, int], laid_over: Track | None = None
) -> Drawing:
    """Return memory over the run with its phases shaded, its censuses ticked and one more line, if
    any, over all.
    """
    view = _time_canvas(size)
    moments = moments_of(timeline.lines)
    lines = [
        [
            Track(_thinned(stretch), series_shade(i), series_dash(i))
            for stretch in stretches_of(points, begins_anew(points, moments))
        ]
        for i, points in enumerate(finite(line.points) for line in timeline.lines)
    ]
    _scale(view, [t.points for tracks in lines for t in tracks], timeline.limit_bytes)
    _shade_phases(view, timeline.spans, shown_stretch(timeline.lines))
    _mark_epochs(view, epoch_starts(timeline))
    for tracks in reversed(lines):
        for track in tracks:
            _draw_track(view, track, filled=tracks is lines[0])
    if laid_over is not None:
        _draw_track(view, laid_over, dotted=len(laid_over.points) <= FEW)
    _mark_limit(view, timeline.limit_bytes)
    _tick_censuses(view, timeline.censuses_s)
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

    Args:
        before: its points in the first run.
        after: its points in the second.
        key: makes identifiers unique on a page.
        size: width and height in pixels.
        axis: what is counted.
        spans: phases to shade.
        epochs: where epochs begin, and their numbers.
        ticks: returns what to write below an axis that isn't as even as its count.

    """
    view = _time_canvas(size)
    tracks = [
        Track(points, name, "" if size == SMALL else SIDE_DASHES[name])
        for points, name in ((before, "before"), (after, "after"))
        if points
    ]
    _scale(view, [track.points for track in tracks], None)
    most = 6 if size == WIDE else 4
    if ticks is not None:
        told = ticks(view.axes.get_xlim(), most)
        view.axes.set_xticks([at for at, _ in told], [text for _, text in told])
    elif axis != CLOCK:
        view.axes.xaxis.set_major_locator(MaxNLocator(most, integer=True))
        view.axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    _shade_phases(view, spans, view.axes.get_xlim())
    _mark_epochs(view, epochs)
    for track in tracks:
        _draw_track(view, track)
        if len(track.points) <= FEW:
            xs, ys = _columns(finite(track.points))
            view.axes.plot(
                xs, ys, color=shade(track.shade), linestyle="none", markersize=4,
                marker="s" if track.shade == "before" else "o", clip_on=False,
            )  # fmt: skip
    return view.finish(key, "Before and after the change")


def draw_ranks(courses: Sequence[Points], key: str, size: tuple[int, int]) -> Drawing:
    """Return memory of several ranks by step, each in the colour of its place."""
    view = canvas(*size, left=62, right=18, top=18, bottom=30)
    tracks = [
        Track(finite(points), series_shade(i), series_dash(i)) for i, points in enumerate(courses)
    ]
    _scale(view, [track.points for track in tracks], None)
    view.axes.xaxis.set_major_locator(MaxNLocator(6 if size == WIDE else 4, integer=True))
    view.axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    for track in reversed(tracks):
        _draw_track(view, track)
    return view.finish(key, "Memory of ranks by step")


def draw_series(culprit: Culprit, key: str, spans: Sequence[PhaseSpan]) -> Drawing:
    """Return a culprit's bytes at each census: its fitted rate, or the phases it climbs in."""
    view = canvas(*SMALL, left=60, right=16, top=12, bottom=28)
    points = finite((point.x, point.y) for point in culprit.chart)
    _scale(view, [points], None)
    if is_fitted(culprit) and len(points) > 1:
        _draw_fit(view, points, culprit.bytes_per_unit, culprit.interval)
    _draw_measured(view, points, joined=len(points) > FEW or not is_fitted(culprit))
    if culprit.chart_unit == SECONDS:
        within = [span for span in spans if span.phase == culprit.phase]
        _shade_phases(view, within, colour="phase-2")
        view.axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: clock(seconds)))
    else:
        view.axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return view.finish(key, "What the culprit retained at each census")


def draw_course(course: Course, key: str, size: tuple[int, int]) -> Drawing:
    """Return live and reserved bytes along a history, its peak and its failure marked."""
    view = canvas(*size, left=62, right=18, top=18, bottom=30)
    tracks = [Track(course.reserved, "series-2"), Track(course.live, "series-1")]
    heights = [track.points for track in tracks] + ([[course.fault]] if course.fault else [])
    _scale(view, heights, None)
    view.axes.xaxis.set_major_locator(MaxNLocator(6 if size == WIDE else 4))
    view.axes.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{x:g} s" if course.unit == SECONDS else f"{x:,.0f}")
    )
    _shade_phases(view, course.spans)
    for track in tracks:
        _draw_steps(view, track, filled=track is tracks[1])
    if course.peak is not None:
        _mark(view, course.peak, "o", "ink")
    if course.fault is not None:
        _mark(view, course.fault, "X", "limit")
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

    Where a report doesn't tell them, each began with the first of its phases.
    """
    starts = {epoch: start for start, epoch in timeline.epochs}
    if not starts:
        for span in timeline.spans:
            starts.setdefault(span.epoch, span.start_s)
    return [(start, epoch + 1) for epoch, start in starts.items()] if len(starts) > 1 else []


def is_fitted(culprit: Culprit) -> bool:
    """Return whether the rate can be drawn through the series: both count the same unit."""
    return culprit.growth == "across" and culprit.chart_unit == culprit.unit


def _draw_measured(view: Canvas, points: Points, *, joined: bool) -> None:
    xs, ys = _columns(points)
    if joined:
        view.axes.plot(xs, ys, color=shade("point"), linewidth=1.6)
    if len(points) <= FEW:
        view.axes.plot(
            xs, ys, color=shade("point"), linestyle="none", marker="o", markersize=5, clip_on=False
        )


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


def _time_canvas(size: tuple[int, int]) -> Canvas:
    view = canvas(*size, left=62, right=14, top=14, bottom=30)
    view.axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: clock(seconds)))
    return view


def _scale(view: Canvas, tracks: Sequence[Points], limit: int | None) -> None:
    points = [point for track in tracks for point in finite(track)]
    xs = [x for x, _ in points]
    top = max((y for _, y in points), default=0.0)
    if limit_in_sight(top, limit):
        top = float(limit or 0)
    left, right = min(xs, default=0.0), max(xs, default=0.0)
    if 0 < left < right * NEAR_ZERO:
        left = 0.0
    view.axes.set_xlim(left, right if right > left else left + 1)
    step = _byte_step(top if top > 0 else 1.0)
    ceiling = math.ceil(top * 1.04 / step) * step if top > 0 else step
    view.axes.set_ylim(0, ceiling)
    ticks = [step * i for i in range(round(ceiling / step) + 1)]
    view.axes.set_yticks(ticks, [_tick(tick, scale_of(top)) for tick in ticks])
    span = view.axes.get_xlim()[1] - view.axes.get_xlim()[0]
    wanted = 7 if view.figure.get_figwidth() > 6 else 4
    second = next((s for s in _TIME_STEPS if span / s <= wanted), span / wanted)
    view.axes.set_xticks(
        [second * i for i in range(math.ceil(left / second), int(right / second) + 1)]
    )


def limit_in_sight(top: float, limit: int | None) -> bool:
    """Return whether a limit is near enough to be drawn with a series of this height."""
    return limit is not None and 0 < limit <= top * LIMIT_IN_SIGHT


def _byte_step(top: float) -> float:
    scale = scale_of(top)
    rough = top / scale / 4.5
    power = 10.0 ** math.floor(math.log10(rough))
    factor = next(f for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * power >= rough * 0.999)
    return factor * power * scale


def _tick(amount: float, scale: int) -> str:
    return f"{amount / scale:g} {unit_name(scale)}" if amount else "0"


def _shade_phases(
    view: Canvas,
    spans: Sequence[PhaseSpan],
    shown: tuple[float, float] | None = None,
    colour: str | None = None,
) -> None:
    """Shade all phases, or those that can be seen on what is ``shown``."""
    left, right = view.axes.get_xlim()
    bare = too_short(spans, shown) if shown else {}
    for phase, own in phase_shades(spans).items():
        if phase in bare:
            continue
        stretches = _merged([s for s in spans if s.phase == phase], (right - left) / FINEST)
        inside = [(max(start, left), min(end, right)) for start, end in stretches]
        outline = _blocks(view, [(start, end) for start, end in inside if end > start])
        if outline is not None:
            view.axes.add_patch(
                PathPatch(outline, facecolor=shade(colour or own), linewidth=0, zorder=0.1)
            )


def _mark_epochs(view: Canvas, starts: Sequence[tuple[float, int]]) -> None:
    if not 0 < len(starts) <= MOST_EPOCHS:
        return
    (left, right), (_, top) = view.axes.get_xlim(), view.axes.get_ylim()
    inside = [(start, epoch) for start, epoch in starts if left <= start <= right]
    view.axes.vlines(
        [start for start, _ in inside], 0, top, color=shade("grid"), linewidth=0.8, zorder=0.2
    )
    room = (right - left) / (16 if view.figure.get_figwidth() > 6 else 8)
    free_from = left
    for start, epoch in inside:
        if start >= free_from:
            view.axes.text(start, top, f"{epoch}", color=shade("muted"), va="bottom", fontsize=9.5)
            free_from = start + room


def _blocks(view: Canvas, stretches: Points) -> Outline | None:
    bottom, top = view.axes.get_ylim()
    blocks = [
        [(start, bottom), (start, top), (end, top), (end, bottom), (start, bottom)]
        for start, end in stretches
    ]
    steps = [int(Outline.MOVETO), *[int(Outline.LINETO)] * 3, int(Outline.CLOSEPOLY)]
    return (
        Outline([corner for b in blocks for corner in b], steps * len(blocks)) if blocks else None
    )


def _merged(spans: Sequence[PhaseSpan], gap: float) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda s: s.start_s):
        if joined and span.start_s - joined[-1][1] < gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], span.end_s))
        else:
            joined.append((span.start_s, span.end_s))
    return joined


def _draw_track(view: Canvas, track: Track, *, filled: bool = False, dotted: bool = False) -> None:
    points = finite(track.points)
    xs, ys = _columns(points)
    if filled and len(points) > 1:
        view.axes.fill_between(xs, ys, color=shade("area"), linewidth=0, zorder=1)
    marker = "o" if dotted or len(points) == 1 else None
    style = (0, tuple(map(float, track.dash.split()))) if track.dash else "-"
    view.axes.plot(
        xs, ys, color=shade(track.shade), linewidth=1.8, linestyle=style, marker=marker,
        markersize=4, solid_joinstyle="round", clip_on=len(points) != 1,
    )  # fmt: skip


def _draw_steps(view: Canvas, track: Track, *, filled: bool) -> None:
    xs, ys = _columns(finite(track.points))
    if filled:
        view.axes.fill_between(xs, ys, step="post", color=shade("area"), linewidth=0, zorder=1)
    view.axes.step(xs, ys, where="post", color=shade(track.shade), linewidth=1.6)


def _mark(view: Canvas, point: tuple[float, float], marker: str, colour: str) -> None:
    x, y = point
    view.axes.plot(
        [x], [y], color=shade(colour), marker=marker, markersize=6, linestyle="none", clip_on=False
    )


def _mark_limit(view: Canvas, limit: int | None) -> None:
    if limit is None or limit > view.axes.get_ylim()[1]:
        return
    view.axes.axhline(limit, color=shade("limit"), linewidth=1.2, linestyle=(0, (6, 3)))
    left, right = view.axes.get_xlim()
    view.axes.text(
        left + (right - left) * 0.01, limit, f"limit {humane_bytes(limit)}",
        color=shade("limit"), va="top", ha="left", fontsize=11,
    )  # fmt: skip


def _tick_censuses(view: Canvas, moments: Sequence[float]) -> None:
    if moments:
        height = view.axes.get_ylim()[1] * 0.018
        view.axes.vlines(finite_only(moments), 0, height, color=shade("muted"), linewidth=0.8)


def finite_only(moments: Sequence[float]) -> list[float]:
    """Return the moments that can be drawn."""
    return [moment for moment in moments if math.isfinite(moment)]


def _draw_fit(view: Canvas, points: Points, rate: float, interval: tuple[float, float]) -> None:
    if not all(map(math.isfinite, (rate, *interval))):
        return
    centre_x = median(x for x, _ in points)
    centre_y = median(y for _, y in points)
    ends = [points[0][0], centre_x, points[-1][0]]

    def along(slope: float) -> list[float]:
        return [centre_y + slope * (x - centre_x) for x in ends]

    low, high = along(interval[0]), along(interval[1])
    view.axes.fill_between(ends, low, high, color=shade("band"), linewidth=0, zorder=0.5)
    view.axes.plot(ends, along(rate), color=shade("fit"), linewidth=1.4)


def _thinned(points: Points) -> Points:
    known = finite(points)
    heights = np.array([y for _, y in known], dtype=np.float64)
    return [known[i] for i in keep_extremes(heights, DRAWN)]


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
