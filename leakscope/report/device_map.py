"""Pictures of a device's memory: its segments laid end to end, and live and reserved bytes along a
history.

The map is drawn by hand rather than by a plotting library: thousands of rectangles become one path
a class. Only numbers and the keys of the classes enter it; the page says what those are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from leakscope.model.device import Figures, MapSegment
from leakscope.model.explanation import BlockClass, DeviceCourse
from leakscope.report.charts import NARROW, WIDE, draw_course, phase_shades
from leakscope.report.svg import Drawing, PlotFrame
from leakscope.report.text import humane_bytes, size_of
from leakscope.report.timeline import LegendEntry, TimelineView, chart_data
from leakscope.report.words import group_words

HOLE, CACHE = "hole", "cache"
SHADES = {
    BlockClass.WEIGHTS.value: "series-1",
    BlockClass.OPTIMIZER.value: "series-5",
    BlockClass.GRADIENTS.value: "series-4",
    BlockClass.ACTIVATIONS.value: "series-3",
    BlockClass.BACKWARD.value: "map-backward",
    BlockClass.WORKSPACE.value: "series-6",
    BlockClass.COMMUNICATION.value: "map-pending",
    BlockClass.PENDING.value: "map-pending",
    BlockClass.OTHER.value: "map-other",
    BlockClass.UNKNOWN.value: "map-unknown",
    "parameters": "series-1",
    "buffers": "map-other",
    "optimizer_state": "series-5",
    "graph": "series-3",
    "batch": "map-backward",
    "accumulation": "map-gathered",
    "caches": "map-gathered",
    "private_pool": "series-6",
    "unexplained": "map-unknown",
    HOLE: "series-2",
    CACHE: "map-cache",
}
"""The CSS variable of each class, and of each role of a recorded run."""
MAP_WIDE, MAP_NARROW = (1180, 22), (340, 44)
"""Width in pixels, and into how many rows all bytes are parted."""
ROW, GAP, LABEL = 15, 3, 24
SEAM = 1.2
"""Segments wider than four of these are parted by one."""
_FLAT = PlotFrame(0, 1, 0, 1, (0, 1), (0, 1))


def key_of(kind: str) -> str:
    """Return what the script knows a class by; one without a colour of its own is as any other."""
    return kind if kind in SHADES else "other"


def map_view(
    segments: Sequence[MapSegment],
    key: str,
    classes: Iterable[tuple[str, str, int]],
    figures: Figures,
    label_of: Callable[[str], str],
) -> SimpleNamespace:
    """Return the map at both widths; ``label_of`` says what a class of blocks is called.

    ``classes`` are the label, the kind and the bytes of what is live.
    """
    free = [("holes", HOLE, figures.stuck), ("free segments", CACHE, figures.cached)]
    legend = [
        LegendEntry(label, SHADES.get(kind, "map-other"), size_of(amount), key=key_of(kind))
        for label, kind, amount in (*classes, *free)
    ]
    return SimpleNamespace(
        key=key,
        wide=draw_map(segments, f"{key}-wide", MAP_WIDE),
        narrow=draw_map(segments, f"{key}-narrow", MAP_NARROW),
        legend=legend,
        data=_map_data(segments, label_of),
    )


@dataclass
class _Pen:
    """Where the next bytes are drawn, and what was drawn so far."""

    width: float
    scale: float
    """Pixels a byte."""
    x: float = 0.0
    y: float = 0.0
    paths: dict[str, list[str]] = field(default_factory=dict)

    def draw(self, size: int, kind: str, *, is_last: bool) -> None:
        rest = size * self.scale
        # Parts of a pixel left over by rounding never make a row of their own.
        while rest > 1e-6:
            if self.width - self.x < 1e-6:
                self.x, self.y = 0.0, self.y + ROW + GAP
            part = min(rest, self.width - self.x)
            rest -= part
            seam = SEAM if is_last and rest <= 1e-6 and part > 4 * SEAM else 0.0
            self.paths.setdefault(kind, []).append(
                f"M{self.x:.4g} {self.y:g}h{part - seam:.4g}v{ROW}h-{part - seam:.4g}z"
            )
            self.x += part


def draw_map(segments: Sequence[MapSegment], key: str, size: tuple[int, int]) -> Drawing:
    """Return the map: one group of rows a stream and pool, its segments parted by seams."""
    width, rows = size
    total = sum(segment.size for segment in segments) or 1
    pen = _Pen(width=width, scale=width * rows / total)
    labels = []
    for words, inside in _groups(segments):
        labels.append((pen.y + LABEL - 8, words))
        pen.x, pen.y = 0.0, pen.y + LABEL
        for segment in inside:
            for place, block in enumerate(segment.blocks):
                pen.draw(block.size, block.kind, is_last=place == len(segment.blocks) - 1)
        pen.y += ROW + GAP
    return Drawing(_svg(pen, labels, key), _FLAT)


def _svg(pen: _Pen, labels: Sequence[tuple[float, str]], key: str) -> str:
    body = [
        f'<path d="{"".join(steps)}" fill="{_fill(kind, key)}" data-kind="{key_of(kind)}"/>'
        for kind, steps in sorted(pen.paths.items())
    ]
    body += [f'<text x="0" y="{y:g}" class="map-label">{words}</text>' for y, words in labels]
    return (
        f'<svg viewBox="0 0 {pen.width:g} {pen.y:g}" role="img" aria-labelledby="{key}-title" '
        f'class="drawing map"><title id="{key}-title">Map of the reserved memory</title>'
        f'<defs><pattern id="{key}-hole" width="5" height="5" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="5" height="5" fill="var(--map-cache)"/>'
        f'<rect width="2.4" height="5" fill="var(--{SHADES[HOLE]})"/></pattern></defs>'
        f"{''.join(body)}</svg>"
    )


def _fill(kind: str, key: str) -> str:
    return f"url(#{key}-hole)" if kind == HOLE else f"var(--{SHADES.get(kind, 'map-other')})"


def _groups(segments: Iterable[MapSegment]) -> Iterator[tuple[str, Iterator[MapSegment]]]:
    parted = groupby(segments, attrgetter("stream", "pool", "is_small"))
    for (stream, pool, is_small), inside in parted:
        yield group_words(stream, pool, is_small=is_small), inside


def _map_data(segments: Sequence[MapSegment], label_of: Callable[[str], str]) -> dict[str, Any]:
    """Return the segments as the script lays them out again, with how the drawing was made.

    A segment is its blocks in order, each as its size and the place of its class in ``kinds``.
    """
    kinds: dict[str, int] = {}

    def packed(segment: MapSegment) -> list[int]:
        blocks = ((b.size, kinds.setdefault(b.kind, len(kinds))) for b in segment.blocks)
        return [*chain.from_iterable(blocks)]

    groups = [[words, [*map(packed, inside)]] for words, inside in _groups(segments)]
    labels = [{HOLE: "hole", CACHE: "free segment"}.get(kind) or label_of(kind) for kind in kinds]
    shades = [SHADES.get(kind, "map-other") for kind in kinds]
    return {
        "kinds": list(zip(kinds, labels, shades, strict=True)),
        "groups": groups,
        "shapes": {"wide": MAP_WIDE, "narrow": MAP_NARROW},
        "row": [ROW, GAP, LABEL],
    }


LINES = (("live", "series-1"), ("reserved", "series-2"))


def curve_view(course: DeviceCourse | None, key: str) -> TimelineView | None:
    """Return the curve drawn for wide and for narrow pages; None where there is no history."""
    if course is None:
        return None
    live = [amount for _, amount in course.live]
    first, peak, last = map(humane_bytes, (live[0], max(live), live[-1]))
    return TimelineView(
        key=key,
        wide=draw_course(course, f"{key}-wide", WIDE),
        narrow=draw_course(course, f"{key}-narrow", NARROW),
        lines=[
            LegendEntry(name, shade, size_of(getattr(course, name)[-1][1])) for name, shade in LINES
        ],
        phases=[LegendEntry(phase, shade) for phase, shade in phase_shades(course.spans).items()],
        note=_curve_note(course),
        summary=f"Live bytes begin at {first}, peak at {peak} and end at {last}.",
    )


def curve_data(view: TimelineView | None, course: DeviceCourse | None) -> dict[str, Any]:
    """Return what the read-out of the curve needs, as plain values."""
    if view is None or course is None:
        return {}
    lines = [{"label": label, "points": getattr(course, label)} for label, _ in LINES]
    spans = [[span.phase, None, span.start_s, span.end_s] for span in course.spans]
    x = "second" if course.unit == "s" else course.unit
    return {view.key: chart_data(x, lines, spans, wide=view.wide, narrow=view.narrow)}


def _curve_note(course: DeviceCourse) -> str:
    notes = ["Seconds from the first entry." if course.unit == "s" else "Entries of the history."]
    if course.peak is not None:
        notes.append(f"● is the peak, {humane_bytes(course.peak[1])}.")
    if course.fault is not None:
        notes.append("✕ is what the failed request would have made live.")
    if course.thinned_from:
        notes.append(f"Thinned from {course.thinned_from:,} entries; peaks are kept.")
    return " ".join(notes)
