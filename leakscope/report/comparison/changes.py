"""What became of gauges and culprits between two runs: laid over each other, as cards and as
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from leakscope.model.comparison import Comparison, CulpritChange
from leakscope.model.report import Line, PhaseSpan, Severity, Timeline
from leakscope.model.text import plural
from leakscope.report import words
from leakscope.report.charts import (
    CLOCK,
    MOST_EPOCHS,
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
from leakscope.report.comparison.axis import STEP, SharedAxis
from leakscope.report.culprits import anchor_of
from leakscope.report.markdown import change_markdown
from leakscope.report.svg import Drawing
from leakscope.report.tables import Bar, Fact, bar_of
from leakscope.report.text import (
    Size,
    exact_bytes,
    humane_bytes,
    humane_interval,
    humane_rate,
    rate_or_none,
    size_of,
)
from leakscope.report.timeline import (
    OUTSIDE,
    LegendEntry,
    TimelineView,
    peak_of,
    phase_data,
    shown_lines,
    span_data,
    unshaded_words,
)
from leakscope.report.words import metric_words

MAIN = ("rss", "pss")
"""Gauges of the process's own memory: the first of them is drawn, the other says the same."""
SIDES = ("before", "after")
WIDENED = "Validations and other phases between two steps have room of their own."
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
    steps: Points
    """Places on the axis and the steps that had ended there; none over the clock."""


@dataclass(frozen=True)
class SeriesView:
    """A culprit's series in both runs: small, with what its read-out needs."""

    key: str
    drawing: Drawing
    axis: str
    sides: list[LegendEntry]
    lines: dict[str, Points]
    unit: str
    steps: Points
    """As those of an overlay; none of what is counted evenly."""


def overlays(comparison: Comparison, axis: SharedAxis | None) -> list[Overlay]:
    """Return each gauge that both runs, or one of them, read; by step where both counted steps."""
    return [_overlay(comparison, m, n, axis, STEP) for n, m in enumerate(_metrics(comparison))]


def overlays_by_time(comparison: Comparison, axis: SharedAxis | None) -> list[Overlay]:
    """Return the leading gauge over the clock, where it is drawn by step otherwise."""
    if axis is None:
        return []
    return [_overlay(comparison, metric, 0, None, CLOCK) for metric in _metrics(comparison)[:1]]


def series_view(
    change: CulpritChange, key: str, shared: SharedAxis | None = None
) -> SeriesView | None:
    """Return a culprit's series in both runs, None where neither has one.

    What climbs within a phase lies on the axis that both runs share.
    """
    charts = (change.before_chart, change.after_chart)
    sides = [finite((point.x, point.y) for point in chart) for chart in charts]
    if not any(sides):
        return None
    axis = CLOCK if change.chart_unit == SECONDS else change.chart_unit or change.unit
    placed = _placed(change, shared) if shared is not None and axis == STEP else None
    sides = placed or sides
    if shared is not None and placed:
        axis = shared.unit
    return SeriesView(
        key=key,
        drawing=draw_overlay(
            sides[0],
            sides[1],
            key,
            SMALL,
            axis=axis,
            ticks=shared.ticks if shared is not None and placed else None,
        ),
        axis="time in the run" if axis == CLOCK else axis,
        sides=[_side(name, points) for name, points in zip(SIDES, sides, strict=True) if points],
        lines={name: points for name, points in zip(SIDES, sides, strict=True) if points},
        unit=axis,
        steps=shared.steps if shared is not None and placed else [],
    )


def overlay_data(overlay: Overlay) -> dict[str, Any]:
    """Return what the script needs to look closer at an overlay, as plain values."""
    phases = [*dict.fromkeys(span.phase for span in overlay.spans)]
    number = {phase: place for place, phase in enumerate(phases)}
    return {
        "zooms": True,
        "x": overlay.axis,
        "steps": _rounded(overlay.steps),
        "lines": [
            {"key": name, "shade": name, "dash": SIDE_DASHES[name], **line}
            for name, line in zip(overlay.lines, _lines(overlay.lines), strict=True)
        ],
        "phases": phase_data(overlay.spans, overlay.view.wide.frame.x),
        "spans": [span_data(span, number, bool(overlay.epochs)) for span in overlay.spans],
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
        "steps": _rounded(series.steps),
        "lines": _lines(series.lines),
        "spans": [],
    }


def _placed(change: CulpritChange, shared: SharedAxis) -> list[Points] | None:
    """Return the series of what climbs within a phase along the axis of both runs."""
    if change.growth != "within":
        return None
    before = shared.of_boundaries(0, change.before_chart)
    after = shared.of_boundaries(1, change.after_chart)
    return None if before is None or after is None else [finite(before), finite(after)]


def _rounded(steps: Points) -> list[list[float]]:
    return [[round(place, 3), round(step, 3)] for place, step in steps]


def _overlay(
    comparison: Comparison, metric: str, number: int, shared: SharedAxis | None, wanted: str
) -> Overlay:
    timelines = (comparison.before_timeline, comparison.after_timeline)
    sides = [_points(timeline, metric, shared, side) for side, timeline in enumerate(timelines)]
    shown = _phased(timelines, shared)
    spans = shown.spans if shown else []
    epochs = epoch_starts(shown) if shown else []
    key = f"overlay-{wanted}-{number}"
    drawings = [
        draw_overlay(
            sides[0],
            sides[1],
            f"{key}-{name}",
            size,
            axis=CLOCK if shared is None else STEP,
            spans=spans,
            epochs=epochs,
            ticks=shared.ticks if shared else None,
        )
        for name, size in (("wide", WIDE), ("narrow", NARROW))
    ]
    found = {name: points for name, points in zip(SIDES, sides, strict=True) if points}
    thinned = any(t and t.thinned_from for t in timelines)
    return Overlay(
        title=f"{_title(metric)} {f'by {shared.unit}' if shared else 'over time'}",
        view=TimelineView(
            key=key,
            wide=drawings[0],
            narrow=drawings[1],
            lines=[
                replace(_side(name, points), dash=SIDE_DASHES[name])
                for name, points in found.items()
            ],
            phases=[
                LegendEntry(phase or OUTSIDE, shade) for phase, shade in phase_shades(spans).items()
            ],
            note=_note(shared, wanted, epochs, unshaded_words(spans, drawings[0].frame.x), thinned),
            summary=" ".join(_summary(name, points) for name, points in found.items()),
            zooms=True,
        ),
        axis=shared.unit if shared else CLOCK,
        lines=found,
        spans=spans,
        epochs=epochs,
        steps=shared.steps if shared else [],
    )


def _note(
    shared: SharedAxis | None,
    wanted: str,
    epochs: Sequence[tuple[float, int]],
    bare: str,
    thinned: bool,
) -> str:
    counted = "steps"
    if shared is not None and shared.unit != STEP:
        counted = "epochs done, for those of one run have more steps"
    marked = "; those at the top, epochs" if 0 < len(epochs) <= MOST_EPOCHS else ""
    notes = [
        NO_CLOCK if shared is None and wanted == STEP else "",
        f"Numbers below count {counted}{marked}." if shared is not None else "",
        WIDENED if shared is not None and shared.has_pauses else "",
        f"{bare}." if bare else "",
        "Thinned; peaks are kept." if thinned else "",
    ]
    return " ".join(filter(None, notes))


def _title(metric: str) -> str:
    return "Memory" if metric in MAIN else metric_words(metric)


def _metrics(comparison: Comparison) -> list[str]:
    timelines = (comparison.before_timeline, comparison.after_timeline)
    lines = [line for timeline in timelines if timeline for line in shown_lines(timeline)]
    named = list(dict.fromkeys(line.metric for line in lines if finite(line.points)))
    own = [metric for metric in MAIN if metric in named][:1]
    return [metric for metric in named if metric in own or metric not in MAIN]


def _points(timeline: Timeline | None, metric: str, shared: SharedAxis | None, side: int) -> Points:
    line = _line(timeline, metric)
    points = finite(line.points) if line else []
    if shared is None or not points:
        return points
    places = shared.places(side, [x for x, _ in points])
    return list(zip(places, (y for _, y in points), strict=True))


def _line(timeline: Timeline | None, metric: str) -> Line | None:
    lines = timeline.lines if timeline else []
    return next((line for line in lines if line.metric == metric), None)


def _phased(timelines: Sequence[Timeline | None], shared: SharedAxis | None) -> Timeline | None:
    """Return the run whose phases reach furthest, those and its epochs along the axis; over the
    clock no two runs share them.
    """
    known = [(side, t) for side, t in enumerate(timelines) if t is not None and t.spans and t.steps]
    if shared is None or not known:
        return None
    side, longest = max(known, key=lambda item: item[1].steps[-1][1])
    starts = shared.places(side, [span.start_s for span in longest.spans])
    ends = shared.places(side, [span.end_s for span in longest.spans])
    begun = shared.places(side, [start for start, _ in longest.epochs])
    return msgspec.structs.replace(
        longest,
        spans=[
            msgspec.structs.replace(span, start_s=start, end_s=end)
            for span, start, end in zip(longest.spans, starts, ends, strict=True)
        ],
        epochs=[(at, epoch) for at, (_, epoch) in zip(begun, longest.epochs, strict=True)],
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


MOST_CARDS = 24
FEW_RANKS = 8


@dataclass(frozen=True)
class RateCell:
    """A rate in one run: ``absent`` where the culprit isn't there."""

    text: str
    exact: str
    interval: str
    absent: bool
    bar: Bar
    reach: Bar
    """The interval, on the scale of the bars."""


@dataclass(frozen=True)
class ChangeView:
    """One culprit before and after."""

    anchor: str
    subject: CulpritChange
    change: str
    label: str
    severity: str
    before: RateCell
    after: RateCell
    certain: str
    facts: list[Fact]
    sizes: tuple[Size, Size] | None
    """What it retained at its highest census in both runs."""
    series: SeriesView | None
    markdown: str


def change_views(
    changes: Sequence[CulpritChange], axis: SharedAxis | None = None
) -> list[ChangeView]:
    """Return every culprit, what is new or worse before the rest, else in the order of rank."""
    taken: set[str] = set()
    ordered = words.worst_first(changes)
    return [_view(change, place, taken, axis) for place, change in enumerate(ordered)]


def cards(views: Sequence[ChangeView]) -> list[ChangeView]:
    """Return those that have a card each; notes have a row in the table of the rest."""
    return [view for view in views if view.severity != Severity.NOTE.value][:MOST_CARDS]


def _view(
    change: CulpritChange, place: int, taken: set[str], axis: SharedAxis | None
) -> ChangeView:
    sides = (
        (change.before_bytes_per_unit, change.before_interval),
        (change.after_bytes_per_unit, change.after_interval),
    )
    top = max((_highest(rate, interval) for rate, interval in sides), default=1.0)
    before, after = (_cell(change, rate, interval, top) for rate, interval in sides)
    is_grave = change.severity is not Severity.NOTE and place < MOST_CARDS
    return ChangeView(
        anchor=anchor_of("change", change.signature, taken),
        subject=change,
        change=words.change_style(change),
        label=words.change_word(change),
        severity=change.severity.value,
        before=before,
        after=after,
        certain=words.significance_words(change),
        facts=_facts(change),
        sizes=_sizes(change),
        series=series_view(change, f"change-series-{place}", axis) if is_grave else None,
        markdown=change_markdown(change),
    )


def _highest(rate: float | None, interval: tuple[float, float] | None) -> float:
    known = [x for x in (rate, *(interval or ())) if x is not None and abs(x) < float("inf")]
    return max(known, default=1.0)


def _cell(
    change: CulpritChange, rate: float | None, interval: tuple[float, float] | None, top: float
) -> RateCell:
    nothing = bar_of(None, top, "")
    if rate is None:
        missing = words.missing_rate(change)
        return RateCell(missing, "not among the culprits", "", True, nothing, nothing)
    return RateCell(
        text=humane_rate(rate, change.unit),
        exact=f"{exact_bytes(rate)} per {change.unit}",
        interval=humane_interval(interval) if interval else "",
        absent=False,
        bar=bar_of(rate, top, "rate"),
        reach=_reach(interval, top),
    )


def _reach(interval: tuple[float, float] | None, top: float) -> Bar:
    if interval is None or not top > 0:
        return bar_of(None, top, "")
    low, high = (min(max(edge / top, 0.0), 1.0) for edge in interval)
    if not low < high:
        return bar_of(None, top, "")
    return Bar(f"{100 * low:.2f}%", f"{100 * (high - low):.2f}%", "reach")


def _sizes(change: CulpritChange) -> tuple[Size, Size] | None:
    if change.before_total_bytes is None and change.after_total_bytes is None:
        return None
    return size_of(change.before_total_bytes), size_of(change.after_total_bytes)


def _facts(change: CulpritChange) -> list[Fact]:
    facts = [
        Fact("Device", "" if change.device == "host" else change.device),
        Fact("In DataLoader workers", _both(change.before_workers, change.after_workers)),
        Fact("In ranks", _ranks(change)),
    ]
    return [fact for fact in facts if fact.value]


def _both(before: int, after: int) -> str:
    return f"{before:,} before, {after:,} after" if before or after else ""


def _ranks(change: CulpritChange) -> str:
    """Return the rates of few ranks, or in how many of many it grows."""
    first, second = change.before_rates_by_rank, change.after_rates_by_rank
    ranks = sorted({**first, **second}, key=lambda rank: (len(rank), rank))
    if len(ranks) > FEW_RANKS:
        return f"grew in {plural(len(first), 'rank')} before, in {len(second):,} after"
    rates = [f"{r}: {rate_or_none(first.get(r))} → {rate_or_none(second.get(r))}" for r in ranks]
    return "; ".join(rates)
