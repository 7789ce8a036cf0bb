"""Live and reserved bytes along a history, with the peak and the failure marked."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from leakscope.model.explanation import Course
from leakscope.report.charts import NARROW, WIDE, draw_course, phase_shades
from leakscope.report.sizes import humane_bytes, size_of
from leakscope.report.timeline import LegendEntry, TimelineView

LINES = (("live", "series-1"), ("reserved", "series-2"))


def curve_view(course: Course | None, key: str) -> TimelineView | None:
    """Return the curve drawn for wide and for narrow pages; None where there is no history."""
    if course is None:
        return None
    last = {"live": course.live[-1][1], "reserved": course.reserved[-1][1]}
    return TimelineView(
        key=key,
        wide=draw_course(course, f"{key}-wide", WIDE),
        narrow=draw_course(course, f"{key}-narrow", NARROW),
        lines=[LegendEntry(label, shade, size_of(last[label])) for label, shade in LINES],
        phases=[LegendEntry(phase, shade) for phase, shade in phase_shades(course.spans).items()],
        note=_note(course),
        summary=_summary(course),
    )


def curve_data(view: TimelineView | None, course: Course | None) -> dict[str, Any]:
    """Return what the read-out of the curve needs, as plain values."""
    if view is None or course is None:
        return {}
    frames = {"wide": asdict(view.wide.frame), "narrow": asdict(view.narrow.frame)}
    points = {"live": course.live, "reserved": course.reserved}
    lines = [{"label": label, "points": points[label]} for label, _ in LINES]
    spans = [[span.phase, None, span.start_s, span.end_s] for span in course.spans]
    x = "second" if course.unit == "s" else course.unit
    return {view.key: {"frames": frames, "x": x, "lines": lines, "spans": spans}}


def _summary(course: Course) -> str:
    live = [amount for _, amount in course.live]
    return (
        f"Live bytes begin at {humane_bytes(live[0])}, peak at {humane_bytes(max(live))} and end "
        f"at {humane_bytes(live[-1])}."
    )


def _note(course: Course) -> str:
    notes = ["Seconds from the first entry." if course.unit == "s" else "Entries of the history."]
    if course.peak is not None:
        notes.append(f"● is the peak, {humane_bytes(course.peak[1])}.")
    if course.fault is not None:
        notes.append("✕ is what the failed request would have made live.")
    if course.thinned_from:
        notes.append(f"Thinned from {course.thinned_from:,} entries; peaks are kept.")
    return " ".join(notes)
