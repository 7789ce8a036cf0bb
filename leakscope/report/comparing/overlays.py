"""Two runs laid over each other: the gauges of both, and a culprit's series in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from leakscope.analysis.comparing.clock import by_step
from leakscope.model.comparison import Comparison, CulpritChange
from leakscope.model.report import Line, PhaseSpan, Timeline
from leakscope.report.charts import (
    CLOCK,
    NARROW,
    SECONDS,
    SIDE_DASHES,
    SMALL,
    WIDE,
    draw_overlay,
    epoch_starts,
    finite,
    phase_shades,
)
from leakscope.report.sizes import humane_bytes
from leakscope.report.svg import Drawing
from leakscope.report.timeline import (
    OUTSIDE,
    LegendEntry,
    TimelineView,
    peak_of,
    phase_data,
    shown_lines,
    unshaded_words,
)
from leakscope.report.wording import metric_words

STEP = "step"
MAIN = ("rss", "pss")
"""Gauges of the process's own memory: the first of them is drawn, the other says the same."""
SIDES = ("before", "after")
BETWEEN = "A validation between two steps is as wide as one."
NO_CLOCK = "Over time, each from its own start: not both runs counted steps."

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Overlay:
    """One gauge in both runs."""

    title: str
    view: TimelineView
    axis: str
    lines: dict[str, Points]
    """By side."""
    spans: list[PhaseSpan]
    epochs: list[tuple[float, int]]


@dataclass(frozen=True)
class SeriesView:
    """A culprit's series in both runs: small, with what its read-out needs."""

    key: str
    drawing: Drawing
    axis: str
    sides: list[LegendEntry]
    lines: dict[str, Points]
    unit: str


def overlays(comparison: Comparison) -> list[Overlay]:
    """Return each gauge that both runs, or one of them, read; by step where both counted steps."""
    return [_overlay(comparison, m, STEP, n) for n, m in enumerate(_metrics(comparison))]


def overlays_by_time(comparison: Comparison) -> list[Overlay]:
    """Return the leading gauge over the clock, where it is drawn by step otherwise."""
    if not _has_steps(comparison):
        return []
    return [_overlay(comparison, metric, CLOCK, 0) for metric in _metrics(comparison)[:1]]


def series_view(change: CulpritChange, key: str) -> SeriesView | None:
    """Return a culprit's series in both runs, None where neither has one."""
    charts = (change.before_chart, change.after_chart)
    sides = [finite((point.x, point.y) for point in chart) for chart in charts]
    if not any(sides):
        return None
    axis = CLOCK if change.chart_unit == SECONDS else change.chart_unit or change.unit
    return SeriesView(
        key=key,
        drawing=draw_overlay(sides[0], sides[1], key, SMALL, axis=axis),
        axis="time in the run" if axis == CLOCK else axis,
        sides=[_side(name, points) for name, points in zip(SIDES, sides, strict=True) if points],
        lines={name: points for name, points in zip(SIDES, sides, strict=True) if points},
        unit=axis,
    )


def overlay_data(overlay: Overlay) -> dict[str, Any]:
    """Return what the script needs to look closer at an overlay, as plain values."""
    phases = [*dict.fromkeys(span.phase for span in overlay.spans)]
    number = {phase: place for place, phase in enumerate(phases)}
    return {
        "zooms": True,
        "x": overlay.axis,
        "lines": [
            {"key": name, "shade": name, "dash": SIDE_DASHES[name], **line}
            for name, line in zip(overlay.lines, _lines(overlay.lines), strict=True)
        ],
        "phases": phase_data(overlay.spans, overlay.view.wide.frame.x),
        "spans": [
            [
                number[span.phase],
                span.epoch + 1 if overlay.epochs else None,
                round(span.start_s, 3),
                round(span.end_s, 3),
            ]
            for span in overlay.spans
        ],
        "epochs": [[round(start, 3), epoch] for start, epoch in overlay.epochs],
        "moments": [],
        "censuses": [],
        "limit": None,
    }


def series_data(series: SeriesView) -> dict[str, Any]:
    """Return what the read-out of a culprit's series needs, as plain values."""
    return {
        "frames": {"only": asdict(series.drawing.frame)},
        "x": series.unit,
        "lines": _lines(series.lines),
        "spans": [],
    }


def _overlay(comparison: Comparison, metric: str, wanted: str, number: int) -> Overlay:
    axis = wanted if wanted == CLOCK or _has_steps(comparison) else CLOCK
    timelines = (comparison.before_timeline, comparison.after_timeline)
    sides = [_points(timeline, metric, axis) for timeline in timelines]
    shown = _phased(timelines, axis)
    spans = shown.spans if shown else []
    key = f"overlay-{wanted}-{number}"
    title = f"{_title(metric)} by step" if axis == STEP else f"{_title(metric)} over time"
    drawings = [
        draw_overlay(sides[0], sides[1], f"{key}-{name}", size, axis=axis, spans=spans)
        for name, size in (("wide", WIDE), ("narrow", NARROW))
    ]
    told = {name: points for name, points in zip(SIDES, sides, strict=True) if points}
    bare = unshaded_words(spans, drawings[0].frame.x)
    note = BETWEEN if axis == STEP else "" if wanted == CLOCK else NO_CLOCK
    note = f"{note}{f' {bare}.' if bare else ''}"
    thinned = any(t and t.thinned_from for t in timelines)
    return Overlay(
        title=title,
        view=TimelineView(
            key=key,
            wide=drawings[0],
            narrow=drawings[1],
            lines=[
                replace(_side(name, points), dash=SIDE_DASHES[name])
                for name, points in told.items()
            ],
            phases=[
                LegendEntry(phase or OUTSIDE, shade) for phase, shade in phase_shades(spans).items()
            ],
            note=f"{note}{' Thinned; peaks are kept.' if thinned else ''}".strip(),
            summary=" ".join(_summary(name, points) for name, points in told.items()),
            zooms=True,
        ),
        axis=axis,
        lines=told,
        spans=spans,
        epochs=epoch_starts(shown) if shown else [],
    )


def _title(metric: str) -> str:
    return "Memory" if metric in MAIN else metric_words(metric)


def _has_steps(comparison: Comparison) -> bool:
    timelines = (comparison.before_timeline, comparison.after_timeline)
    drawn = [t for t in timelines if t is not None and any(finite(x.points) for x in t.lines)]
    return bool(drawn) and all(timeline.steps for timeline in drawn)


def _metrics(comparison: Comparison) -> list[str]:
    timelines = (comparison.before_timeline, comparison.after_timeline)
    lines = [line for timeline in timelines if timeline for line in shown_lines(timeline)]
    named = list(dict.fromkeys(line.metric for line in lines if finite(line.points)))
    own = [metric for metric in MAIN if metric in named][:1]
    return [metric for metric in named if metric in own or metric not in MAIN]


def _points(timeline: Timeline | None, metric: str, axis: str) -> Points:
    line = _line(timeline, metric)
    if timeline is None or line is None:
        return []
    points = finite(line.points)
    if axis == CLOCK or not points:
        return points
    steps = by_step([x for x, _ in points], timeline.steps)
    return list(zip(steps, (y for _, y in points), strict=True))


def _line(timeline: Timeline | None, metric: str) -> Line | None:
    lines = timeline.lines if timeline else []
    return next((line for line in lines if line.metric == metric), None)


def _phased(timelines: Sequence[Timeline | None], axis: str) -> Timeline | None:
    """Return the first run that has phases, those and its epochs by step; over the clock no two
    runs share them.
    """
    known = next((t for t in timelines if t is not None and t.spans and t.steps), None)
    if axis == CLOCK or known is None:
        return None
    starts = by_step([span.start_s for span in known.spans], known.steps)
    ends = by_step([span.end_s for span in known.spans], known.steps)
    begun = by_step([start for start, _ in known.epochs], known.steps)
    return msgspec.structs.replace(
        known,
        spans=[
            msgspec.structs.replace(span, start_s=start, end_s=end)
            for span, start, end in zip(known.spans, starts, ends, strict=True)
        ],
        epochs=[(at, epoch) for at, (_, epoch) in zip(begun, known.epochs, strict=True)],
    )


def _side(name: str, points: Points) -> LegendEntry:
    return LegendEntry(name, name, key=name, peak=peak_of(points))


def _summary(name: str, points: Points) -> str:
    first, last, peak = points[0][1], points[-1][1], max(y for _, y in points)
    return (
        f"{name.capitalize()} it begins at {humane_bytes(first)}, peaks at {humane_bytes(peak)} "
        f"and ends at {humane_bytes(last)}."
    )


def _lines(lines: dict[str, Points]) -> list[dict[str, Any]]:
    return [
        {"label": name, "points": [[round(x, 3), round(y)] for x, y in points]}
        for name, points in lines.items()
    ]
