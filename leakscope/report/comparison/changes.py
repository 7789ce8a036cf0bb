"""What became of gauges and culprits between two runs: laid over each other, as cards and as
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from leakscope.model.comparison import Comparison, CulpritChange
from leakscope.model.report import Severity, Timeline
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
    TicksOf,
    draw_overlay,
    epoch_starts,
    finite,
    phase_shades,
)
from leakscope.report.comparison.axis import STEP, SharedAxis
from leakscope.report.culprits import anchor_of
from leakscope.report.svg import Drawing
from leakscope.report.tables import NO_BAR, Bar, Fact, bar_of
from leakscope.report.text import (
    Size,
    course_words,
    exact_bytes,
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
    data: dict[str, Any]
    """What the script needs to look closer, as plain values."""


@dataclass(frozen=True)
class SeriesView:
    """A culprit's series in both runs, small."""

    key: str
    drawing: Drawing
    axis: str
    sides: list[LegendEntry]
    data: dict[str, Any]
    """What its read-out needs, as plain values."""


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
    ticks: TicksOf | None = None
    steps: Points = []
    if shared is not None and axis == STEP and (placed := _placed(change, shared)):
        sides, axis, ticks, steps = placed, shared.unit, shared.ticks, shared.steps
    drawing = draw_overlay(sides[0], sides[1], key, SMALL, axis=axis, ticks=ticks)
    shown = {name: points for name, points in zip(SIDES, sides, strict=True) if points}
    return SeriesView(
        key=key,
        drawing=drawing,
        axis="time in the run" if axis == CLOCK else axis,
        sides=[_side(name, points) for name, points in shown.items()],
        data={
            "frames": {"only": asdict(drawing.frame)},
            "x": axis,
            "steps": _rounded(steps),
            "lines": [_line(name, points) for name, points in shown.items()],
            "spans": [],
        },
    )


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
    phased = _phased(timelines, shared)
    spans = phased.spans if phased else []
    epochs = epoch_starts(phased) if phased else []
    key = f"overlay-{wanted}-{number}"
    wide, narrow = (
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
    )
    found = {name: points for name, points in zip(SIDES, sides, strict=True) if points}
    thinned = any(t and t.thinned_from for t in timelines)
    shades = phase_shades(spans)
    places = {phase: place for place, phase in enumerate(shades)}
    title = "Memory" if metric in MAIN else words.metric_words(metric)
    return Overlay(
        title=f"{title} {f'by {shared.unit}' if shared else 'over time'}",
        view=TimelineView(
            key=key,
            wide=wide,
            narrow=narrow,
            lines=[replace(_side(n, points), dash=SIDE_DASHES[n]) for n, points in found.items()],
            phases=[LegendEntry(phase or OUTSIDE, shade) for phase, shade in shades.items()],
            note=_note(shared, wanted, epochs, unshaded_words(spans, wide.frame.x), thinned),
            summary=" ".join(
                f"{course_words(f'{name.capitalize()} it', [y for _, y in points])}."
                for name, points in found.items()
            ),
            zooms=True,
        ),
        data={
            "zooms": True,
            "x": shared.unit if shared else CLOCK,
            "steps": _rounded(shared.steps if shared else []),
            "lines": [
                {"key": name, "shade": name, "dash": SIDE_DASHES[name], **_line(name, points)}
                for name, points in found.items()
            ],
            "phases": phase_data(spans, wide.frame.x),
            "spans": [span_data(span, places, bool(epochs)) for span in spans],
            "epochs": [[round(start, 3), epoch] for start, epoch in epochs],
            "moments": [],
            "censuses": [],
            "limit": None,
        },
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


def _metrics(comparison: Comparison) -> list[str]:
    timelines = (comparison.before_timeline, comparison.after_timeline)
    lines = [line for timeline in timelines if timeline for line in shown_lines(timeline)]
    named = list(dict.fromkeys(line.metric for line in lines if finite(line.points)))
    own = [metric for metric in MAIN if metric in named][:1]
    return [metric for metric in named if metric in own or metric not in MAIN]


def _points(timeline: Timeline | None, metric: str, shared: SharedAxis | None, side: int) -> Points:
    lines = timeline.lines if timeline else []
    points = next((finite(line.points) for line in lines if line.metric == metric), [])
    if shared is None or not points:
        return points
    places = shared.places(side, [x for x, _ in points])
    return list(zip(places, (y for _, y in points), strict=True))


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


def _line(name: str, points: Points) -> dict[str, Any]:
    return {"label": name, "points": [[round(x, 3), round(y)] for x, y in points]}


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
    before: RateCell
    after: RateCell
    facts: list[Fact]
    sizes: tuple[Size, Size] | None
    """What it retained at its highest census in both runs."""
    series: SeriesView | None


def change_views(
    changes: Sequence[CulpritChange], axis: SharedAxis | None = None
) -> list[ChangeView]:
    """Return every culprit, what is new or worse before the rest, else in the order of rank."""
    taken: set[str] = set()
    ordered = words.worst_first(changes)
    return [_view(change, place, taken, axis) for place, change in enumerate(ordered)]


def cards(views: Sequence[ChangeView]) -> list[ChangeView]:
    """Return those that have a card each; notes have a row in the table of the rest."""
    return [view for view in views if view.subject.severity is not Severity.NOTE][:MOST_CARDS]


def _view(
    change: CulpritChange, place: int, taken: set[str], axis: SharedAxis | None
) -> ChangeView:
    sides = (
        (change.before_bytes_per_unit, change.before_interval),
        (change.after_bytes_per_unit, change.after_interval),
    )
    top = max((_highest(rate, interval) for rate, interval in sides), default=1.0)
    before, after = (_cell(change, rate, interval, top) for rate, interval in sides)
    totals = (change.before_total_bytes, change.after_total_bytes)
    is_grave = change.severity is not Severity.NOTE and place < MOST_CARDS
    return ChangeView(
        anchor=anchor_of("change", change.signature, taken),
        subject=change,
        change=words.change_style(change),
        label=words.change_word(change),
        before=before,
        after=after,
        facts=_facts(change),
        sizes=None if totals == (None, None) else (size_of(totals[0]), size_of(totals[1])),
        series=series_view(change, f"change-series-{place}", axis) if is_grave else None,
    )


def _highest(rate: float | None, interval: tuple[float, float] | None) -> float:
    known = [x for x in (rate, *(interval or ())) if x is not None and abs(x) < float("inf")]
    return max(known, default=1.0)


def _cell(
    change: CulpritChange, rate: float | None, interval: tuple[float, float] | None, top: float
) -> RateCell:
    if rate is None:
        missing = words.missing_rate(change)
        return RateCell(missing, "not among the culprits", "", True, NO_BAR, NO_BAR)
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
        return NO_BAR
    low, high = (min(max(edge / top, 0.0), 1.0) for edge in interval)
    return Bar(f"{100 * low:.2f}%", f"{100 * (high - low):.2f}%", "reach") if low < high else NO_BAR


def _facts(change: CulpritChange) -> list[Fact]:
    workers = f"{change.before_workers:,} before, {change.after_workers:,} after"
    in_workers = change.before_workers or change.after_workers
    facts = [
        Fact("Device", "" if change.device == "host" else change.device),
        Fact("In DataLoader workers", workers if in_workers else ""),
        Fact("In ranks", _ranks(change)),
    ]
    return [fact for fact in facts if fact.value]


def _ranks(change: CulpritChange) -> str:
    """Return the rates of few ranks, or in how many of many it grows."""
    first, second = change.before_rates_by_rank, change.after_rates_by_rank
    ranks = sorted({**first, **second}, key=lambda rank: (len(rank), rank))
    if len(ranks) > FEW_RANKS:
        return f"grew in {plural(len(first), 'rank')} before, in {len(second):,} after"
    rates = [f"{r}: {rate_or_none(first.get(r))} → {rate_or_none(second.get(r))}" for r in ranks]
    return "; ".join(rates)
