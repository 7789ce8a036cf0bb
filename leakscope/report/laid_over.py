"""Culprits laid over the timeline: their series, placed in time, each in a look of its own."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.model.report import Culprit, Point, Report, Severity, Timeline
from leakscope.report.charts import SECONDS, finite, series_dash, series_shade
from leakscope.report.culprit import CulpritView
from leakscope.report.timeline import LaidOver, shown_lines

MOST_CULPRITS = 8
"""So many culprits can be laid over the gauges."""


def laid_over(report: Report, cards: Sequence[CulpritView]) -> list[LaidOver]:
    """Return the culprits whose series can be placed in time, the worst first.

    The first culprit alone is ``on``, where the chart keeps its scale with it.
    """
    timeline = report.timeline
    if timeline is None:
        return []
    gauges = shown_lines(timeline)
    top = max((y for gauge in gauges for _, y in finite(gauge.points)), default=0.0)
    accused = next((card.anchor for card in cards if card.severity != Severity.NOTE.value), "")
    found: list[LaidOver] = []
    for culprit, card in zip(report.culprits, cards, strict=True):
        points = _placed(culprit, timeline)
        if len(points) > 1 and len(found) < MOST_CULPRITS:
            place = len(gauges) + len(found)
            fits = max(y for _, y in points) <= top
            found.append(
                LaidOver(
                    key=card.anchor,
                    label=_label(culprit),
                    shade=series_shade(place),
                    dash=series_dash(place, laid_over=True),
                    points=points,
                    on=fits and card.anchor == accused,
                )
            )
    return found


def _label(culprit: Culprit) -> str:
    return f"{culprit.name}, one worker" if culprit.workers > 1 else culprit.name


def _placed(culprit: Culprit, timeline: Timeline) -> list[tuple[float, float]]:
    """Return a culprit's series over seconds; empty where its own clock can't be read here."""
    if culprit.workers and not culprit.chart_s:
        return []
    when = {moment.boundary: moment.time_s for moment in timeline.moments}
    seconds = culprit.chart_s or [_second(p, culprit.chart_unit, when) for p in culprit.chart]
    return sorted(finite(zip(seconds, (point.y for point in culprit.chart), strict=False)))


def _second(point: Point, unit: str, when: dict[int, float]) -> float:
    return point.x if unit == SECONDS else when.get(point.boundary, float("nan"))
