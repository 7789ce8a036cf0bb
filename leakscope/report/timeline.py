"""The timeline of a run's page: the drawings, the legend, culprits laid over it, the data for its
script.

It begins with the run's work, where coming to it took a large part of the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from leakscope.model.report import Culprit, Line, PhaseSpan, Report, Severity, Timeline
from leakscope.report.charts import (
    MOST_EPOCHS,
    NARROW,
    NEAR_ZERO,
    SECONDS,
    WIDE,
    PlotLine,
    draw_timeline,
    epoch_starts,
    finite,
    finite_only,
    limit_in_sight,
    moments_of,
    phase_shades,
    restarts_of,
    series_dash,
    series_shade,
    shown_stretch,
    too_short,
)
from leakscope.report.culprits import CulpritView
from leakscope.report.svg import Drawing
from leakscope.report.text import Size, clock, course_words, humane_bytes, humane_duration, size_of

OUTSIDE = "outside any phase"
CLOSEST = 1_000_000
"""A phase that lasts so small a part of the run is still shaded in the closest look."""
NONE_SHADED = "Phases are too short to be shaded; looking closer shows them"
MOST_NAMED = 3
"""So many phases that aren't shaded are named."""


@dataclass(frozen=True)
class LegendEntry:
    """A line, phase or kind of memory and its colour."""

    label: str
    shade: str
    last: Size | None = None
    """What there is of it, or was at the last."""
    key: str = ""
    """What the script knows a line by."""
    dash: str = ""
    """How a line is dashed; empty where it is drawn through."""
    peak: Size | None = None
    """The highest point of a line."""


@dataclass(frozen=True)
class OverlaidCulprit:
    """A culprit's series over seconds."""

    key: str
    """The anchor of its card."""
    label: str
    shade: str
    dash: str
    points: list[tuple[float, float]]
    on: bool
    """Whether it is drawn before anybody asks for it."""


@dataclass(frozen=True)
class TimelineView:
    """Memory over the run, drawn for wide and for narrow pages."""

    key: str
    wide: Drawing
    narrow: Drawing
    lines: list[LegendEntry]
    phases: list[LegendEntry]
    note: str
    summary: str
    zooms: bool = False
    """Whether the page's script can look closer."""
    laid_over: LegendEntry | None = None
    """The culprit that is drawn over the lines."""


def timeline_view(
    timeline: Timeline | None, beginning: str = "", laid: OverlaidCulprit | None = None
) -> TimelineView | None:
    """Return the timeline, or None where nothing was measured.

    ``beginning`` is a sentence about the time before it, ``laid`` the culprit to draw over the
    lines.
    """
    if timeline is None or not any(finite(line.points) for line in timeline.lines):
        return None
    timeline = msgspec.structs.replace(timeline, lines=shown_lines(timeline))
    over = PlotLine(laid.points, laid.shade, laid.dash) if laid else None
    courses = [(line.label, line.points) for line in timeline.lines]
    laid_over = None
    if laid:
        courses.append((laid.label, laid.points))
        peak = peak_of(laid.points)
        laid_over = LegendEntry(laid.label, laid.shade, key=laid.key, dash=laid.dash, peak=peak)
    return TimelineView(
        key="timeline",
        wide=draw_timeline(timeline, "timeline-wide", WIDE, over),
        narrow=draw_timeline(timeline, "timeline-narrow", NARROW, over),
        lines=[
            line_entry(place, line.label, line.points, line.metric)
            for place, line in enumerate(timeline.lines)
        ],
        phases=[
            LegendEntry(phase or OUTSIDE, shade)
            for phase, shade in phase_shades(timeline.spans).items()
        ],
        note=" ".join(filter(None, [beginning, _note(timeline)])),
        summary=" ".join(_summary(label, finite(points)) for label, points in courses),
        zooms=True,
        laid_over=laid_over,
    )


def shown_lines(timeline: Timeline) -> list[Line]:
    """Return the lines that ever leave zero; all where none does."""
    lines = [line for line in timeline.lines if any(y > 0 for _, y in finite(line.points))]
    return lines or timeline.lines


def line_entry(
    place: int, label: str, points: Sequence[tuple[float, float]], key: str = ""
) -> LegendEntry:
    """Return the entry of the so-manieth line."""
    shade, dash = series_shade(place), series_dash(place)
    return LegendEntry(label, shade, key=key, dash=dash, peak=peak_of(points))


def peak_of(points: Sequence[tuple[float, float]]) -> Size | None:
    """Return the highest point of a line, None where it has none."""
    return size_of(max(y for _, y in finite(points))) if finite(points) else None


def chart_data(
    x: str, lines: Sequence[Any], spans: Sequence[Any] = (), **drawings: Drawing
) -> dict[str, Any]:
    """Return what the read-out of a chart needs, as plain values; its drawings by their width."""
    frames = {width: asdict(drawing.frame) for width, drawing in drawings.items()}
    return {"frames": frames, "x": x, "lines": lines, "spans": spans}


def line_data(label: str, line: Line, moments: Sequence[float]) -> dict[str, Any]:
    """Return a gauge as plain values; ``begins`` are the places where a new line begins."""
    points = finite(line.points)
    begins = restarts_of(points, moments)
    return {"label": label, "points": compact(points)} | ({"begins": begins} if begins else {})


def compact(points: Sequence[tuple[float, float]]) -> list[list[float]]:
    """Return points as plain lists, seconds to the millisecond and amounts to the byte."""
    return [[round(x, 3), round(y)] for x, y in finite(points)]


def _summary(label: str, points: Sequence[tuple[float, float]]) -> str:
    if not points:
        return ""
    course = course_words(label, [y for _, y in points])
    return f"{course} after {humane_duration(points[-1][0])}."


def _note(timeline: Timeline) -> str:
    top = max(y for line in timeline.lines for _, y in finite(line.points))
    notes = []
    if timeline.limit_bytes and not limit_in_sight(top, timeline.limit_bytes):
        notes.append(f"The limit, {humane_bytes(timeline.limit_bytes)}, is above the picture.")
    if timeline.censuses_s:
        notes.append(f"Ticks at the foot: {len(timeline.censuses_s):,} censuses.")
    epochs = epoch_starts(timeline)
    if 0 < len(epochs) <= MOST_EPOCHS:
        notes.append("Numbers at the top: epochs.")
    if timeline.epochs_begun:
        notes.append(
            f"Marked in a closer look are {len(epochs):,} of {timeline.epochs_begun:,} epochs, "
            "evenly over the run."
        )
    moments = moments_of(timeline.lines)
    if any(restarts_of(finite(line.points), moments) for line in timeline.lines):
        notes.append("Points that no line joins: readings far apart, nothing known between them.")
    if timeline.thinned_from:
        notes.append(f"Thinned from {timeline.thinned_from:,} points; peaks are kept.")
    return " ".join([*notes, *_phase_notes(timeline)])


def _phase_notes(timeline: Timeline) -> list[str]:
    known, begun = len(timeline.spans), timeline.phases_begun
    bare = unshaded_words(timeline.spans, shown_stretch(timeline.lines))
    if not begun:
        return [f"{bare}."] if bare else []
    some = f"{known:,} of {begun:,}"
    if bare == NONE_SHADED:
        return [f"{bare}: {some}, evenly over the run."]
    if bare:
        return [f"{bare}.", f"Known are {some} phases, evenly over the run."]
    return [f"Shaded are {some} phases, evenly over the run."]


def unshaded_words(spans: Sequence[PhaseSpan], shown: tuple[float, float]) -> str:
    """Return which phases a chart of so much of the axis doesn't shade; empty where it does all."""
    bare = [phase or OUTSIDE for phase in too_short(spans, shown)]
    if not bare:
        return ""
    if len(bare) == len(phase_shades(spans)):
        return NONE_SHADED
    named = ", ".join(bare[:MOST_NAMED])
    rest = f" and {len(bare) - MOST_NAMED:,} more" if len(bare) > MOST_NAMED else ""
    they = "it" if len(bare) == 1 else "them"
    return f"Too short to be shaded: {named}{rest}; looking closer shows {they}"


def phase_data(spans: Sequence[PhaseSpan], shown: tuple[float, float]) -> list[dict[str, Any]]:
    """Return phases as plain values; ``lasts`` is of those that only a closer look shades."""
    bare = too_short(spans, shown)
    least = (shown[1] - shown[0]) / CLOSEST
    return [
        {"label": phase or OUTSIDE, "shade": shade}
        | ({"lasts": round(max(bare[phase], least), 9)} if phase in bare else {})
        for phase, shade in phase_shades(spans).items()
    ]


MOST_CULPRITS = 8
"""So many culprits can be laid over the gauges."""


def overlaid_culprits(report: Report, cards: Sequence[CulpritView]) -> list[OverlaidCulprit]:
    """Return the culprits whose series can be placed in time, the worst first.

    The first culprit alone is ``on``, where the chart keeps its scale with it.
    """
    timeline = report.timeline
    if timeline is None:
        return []
    gauges = shown_lines(timeline)
    top = max((y for gauge in gauges for _, y in finite(gauge.points)), default=0.0)
    accused = next((card.anchor for card in cards if card.severity != Severity.NOTE.value), "")
    found: list[OverlaidCulprit] = []
    for culprit, card in zip(report.culprits, cards, strict=True):
        points = _placed(culprit, timeline)
        if len(points) > 1 and len(found) < MOST_CULPRITS:
            place = len(gauges) + len(found)
            fits = max(y for _, y in points) <= top
            found.append(
                OverlaidCulprit(
                    key=card.anchor,
                    label=f"{culprit.name}{', one worker' if culprit.workers > 1 else ''}",
                    shade=series_shade(place),
                    dash=series_dash(place, laid_over=True),
                    points=points,
                    on=fits and card.anchor == accused,
                )
            )
    return found


def _placed(culprit: Culprit, timeline: Timeline) -> list[tuple[float, float]]:
    """Return a culprit's series over seconds; empty where its own clock can't be read here."""
    if culprit.workers and not culprit.chart_s:
        return []
    when = {moment.boundary: moment.time_s for moment in timeline.moments}
    in_seconds = culprit.chart_unit == SECONDS
    seconds = culprit.chart_s or [
        point.x if in_seconds else when.get(point.boundary, math.nan) for point in culprit.chart
    ]
    return sorted(finite(zip(seconds, (point.y for point in culprit.chart), strict=False)))


def exploring_data(
    view: TimelineView | None, report: Report, laid: Sequence[OverlaidCulprit]
) -> dict[str, Any]:
    """Return all that the script needs to draw any stretch of the timeline, as plain values.

    Times are seconds; phases are given by their place in ``phases``. What can be laid over the
    lines is not drawn until somebody wants it: further gauges, and culprits but for the one that is
    ``on``.
    """
    timeline = report.timeline
    if view is None or timeline is None:
        return {}
    gauges = shown_lines(timeline)
    lines = [
        line_data(entry.label, gauge, moments_of(gauges))
        | {"key": gauge.metric, "shade": entry.shade, "dash": entry.dash}
        for entry, gauge in zip(view.lines, gauges, strict=True)
    ]
    phases = [*dict.fromkeys(span.phase for span in timeline.spans)]
    unspanned = sorted({moment.phase for moment in timeline.moments} - {*phases})
    number = {phase: place for place, phase in enumerate([*phases, *unspanned])}
    epochs = epoch_starts(timeline)
    spans = [span_data(span, number, bool(epochs)) for span in timeline.spans]
    culprits = [
        {"key": line.key, "culprit": True} | vars(line) | {"points": compact(line.points)}
        for line in laid
    ]
    return {
        view.key: chart_data("clock", lines, spans, wide=view.wide, narrow=view.narrow)
        | {
            "zooms": True,
            "laidOver": [*_further_lines(timeline, len(lines) + MOST_CULPRITS), *culprits],
            "phases": [
                *phase_data(timeline.spans, shown_stretch(gauges)),
                *({"label": phase or OUTSIDE, "shade": ""} for phase in unspanned),
            ],
            "epochs": [[_moment(start), epoch] for start, epoch in epochs],
            "moments": [
                [_moment(at), m.step, m.epoch + 1 if epochs else None, number[m.phase], m.boundary]
                for m in timeline.moments
                if math.isfinite(at := m.time_s)
            ],
            "censuses": [_moment(moment) for moment in finite_only(timeline.censuses_s)],
            "limit": timeline.limit_bytes,
        }
    }


def _further_lines(timeline: Timeline, taken: int) -> list[dict[str, Any]]:
    moments = moments_of(timeline.lines)
    drawn = [line for line in timeline.further if len(finite(line.points)) > 1]
    return [
        {
            "key": line.metric,
            "shade": series_shade(place),
            "dash": series_dash(place, laid_over=True),
            **line_data(line.label, line, moments),
        }
        for place, line in enumerate(drawn, taken)
    ]


def span_data(span: PhaseSpan, number: dict[str, int], has_epochs: bool) -> list[float | None]:
    """Return a phase as plain values, its epoch only where there is a second one."""
    epoch = span.epoch + 1 if has_epochs else None
    return [number[span.phase], epoch, _moment(span.start_s), _moment(span.end_s)]


def _moment(seconds: float) -> float:
    return round(seconds, 3)


def from_first_phase(timeline: Timeline) -> Timeline:
    """Return the timeline from its first phase on, whole where that begins soon.

    Imports and loading would else fill the picture of a short run, and what grows in its training
    would be a line at its edge.
    """
    start = _first_phase(timeline)
    last = max((x for line in timeline.lines for x, _ in finite(line.points)), default=0.0)
    if not start or start < NEAR_ZERO * last:
        return timeline
    lines = _since(timeline.lines, start)
    if not any(len(line.points) > 1 for line in lines):
        return timeline
    return msgspec.structs.replace(
        timeline,
        lines=lines,
        further=_since(timeline.further, start),
        moments=[moment for moment in timeline.moments if moment.time_s >= start],
        censuses_s=[moment for moment in timeline.censuses_s if moment >= start],
    )


def beginning_note(whole: Timeline, shown: Timeline) -> str:
    """Return what the picture leaves out before it begins; empty where it is whole."""
    if shown is whole:
        return ""
    start = clock(_first_phase(whole))
    text = f"The picture starts {start} into the run, where work begins"
    for line, rest in zip(whole.lines, shown.lines, strict=True):
        points, after = finite(line.points), finite(rest.points)
        if len(after) < len(points) and after:
            taken = f"from {humane_bytes(points[0][1])} to {humane_bytes(after[0][1])}"
            return f"{text}; imports and loading had taken memory {taken}."
    return f"{text}."


def _first_phase(timeline: Timeline) -> float:
    return min((span.start_s for span in timeline.spans), default=0.0)


def _since(lines: Sequence[Line], start: float) -> list[Line]:
    return [
        msgspec.structs.replace(line, points=[(x, y) for x, y in line.points if x >= start])
        for line in lines
    ]
