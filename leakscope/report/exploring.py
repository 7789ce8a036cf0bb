"""The timeline as data, for the script that pans, zooms and reads it: gauges, culprits, phases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from leakscope.model.report import PhaseSpan, Report, Timeline
from leakscope.report.charts import (
    epoch_starts,
    finite,
    finite_only,
    series_dash,
    series_shade,
    shown_stretch,
)
from leakscope.report.laid_over import MOST_CULPRITS
from leakscope.report.stretches import moments_of
from leakscope.report.timeline import (
    OUTSIDE,
    LaidOver,
    TimelineView,
    compact,
    line_data,
    phase_data,
    shown_lines,
    timeline_data,
)

_DIGITS = 3
"""Of seconds: a step of a millisecond has a place of its own."""


def exploring_data(
    view: TimelineView | None, report: Report, laid: Sequence[LaidOver]
) -> dict[str, Any]:
    """Return all that the script needs to draw any stretch of the timeline, as plain values.

    Times are seconds; phases are told by their place in ``phases``. What can be laid over the lines
    is not drawn until somebody wants it: further gauges, and culprits but for the one that is
    ``on``.
    """
    timeline = report.timeline
    if view is None or timeline is None:
        return {}
    data = timeline_data(view, timeline)[view.key]
    lines = [
        line | {"key": metric, "shade": entry.shade, "dash": entry.dash}
        for line, metric, entry in zip(
            data["lines"], [line.metric for line in shown_lines(timeline)], view.lines, strict=True
        )
    ]
    phases = [*dict.fromkeys(span.phase for span in timeline.spans)]
    unspanned = sorted({moment.phase for moment in timeline.moments} - {*phases})
    number = {phase: place for place, phase in enumerate([*phases, *unspanned])}
    epochs = epoch_starts(timeline)
    return {
        view.key: data
        | {
            "zooms": True,
            "lines": lines,
            "laidOver": [
                *_further_lines(timeline, len(lines) + MOST_CULPRITS),
                *map(_culprit_line, laid),
            ],
            "phases": [
                *phase_data(timeline.spans, shown_stretch(shown_lines(timeline))),
                *({"label": phase or OUTSIDE, "shade": ""} for phase in unspanned),
            ],
            "spans": [_span(span, number, bool(epochs)) for span in timeline.spans],
            "epochs": [[_moment(start), epoch] for start, epoch in epochs],
            "moments": [
                [
                    _moment(m.time_s),
                    m.step,
                    m.epoch + 1 if epochs else None,
                    number[m.phase],
                    m.boundary,
                ]
                for m in timeline.moments
                if math.isfinite(m.time_s)
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


def _culprit_line(line: LaidOver) -> dict[str, Any]:
    return {
        "key": line.key,
        "culprit": True,
        "label": line.label,
        "shade": line.shade,
        "dash": line.dash,
        "points": compact(line.points),
        "on": line.on,
    }


def _span(span: PhaseSpan, number: dict[str, int], has_epochs: bool) -> list[float | None]:
    """Return a phase as plain values, its epoch only where a second one tells them apart."""
    epoch = span.epoch + 1 if has_epochs else None
    return [number[span.phase], epoch, _moment(span.start_s), _moment(span.end_s)]


def _moment(seconds: float) -> float:
    return round(seconds, _DIGITS)
