"""Where the picture of a run begins: with its work, where coming to it took a large part of it."""

from __future__ import annotations

import msgspec

from leakscope.model.report import Line, Timeline
from leakscope.report.charts import NEAR_ZERO, finite
from leakscope.report.sizes import clock, humane_bytes


def from_first_phase(timeline: Timeline) -> Timeline:
    """Return the timeline from its first phase on, whole where that begins soon.

    Imports and loading would else fill the picture of a short run, and what grows in its training
    would be a line at its edge.
    """
    start = _first_phase(timeline)
    last = max((x for line in timeline.lines for x, _ in finite(line.points)), default=0.0)
    if not start or start < NEAR_ZERO * last:
        return timeline
    lines = [msgspec.structs.replace(line, points=_since(line, start)) for line in timeline.lines]
    if not any(len(line.points) > 1 for line in lines):
        return timeline
    return msgspec.structs.replace(
        timeline,
        lines=lines,
        further=[
            msgspec.structs.replace(line, points=_since(line, start)) for line in timeline.further
        ],
        moments=[moment for moment in timeline.moments if moment.time_s >= start],
        censuses_s=[moment for moment in timeline.censuses_s if moment >= start],
    )


def beginning_note(whole: Timeline, shown: Timeline) -> str:
    """Return what the picture leaves out before it begins; empty where it is whole."""
    if shown is whole:
        return ""
    start = clock(_first_phase(whole))
    told = f"The picture begins {start} into the run, where work does"
    for line, rest in zip(whole.lines, shown.lines, strict=True):
        points, after = finite(line.points), finite(rest.points)
        if len(after) < len(points) and after:
            taken = f"from {humane_bytes(points[0][1])} to {humane_bytes(after[0][1])}"
            return f"{told}; imports and loading had taken memory {taken}."
    return f"{told}."


def _first_phase(timeline: Timeline) -> float:
    return min((span.start_s for span in timeline.spans), default=0.0)


def _since(line: Line, start: float) -> list[tuple[float, float]]:
    return [(x, y) for x, y in line.points if x >= start]
