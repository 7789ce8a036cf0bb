"""Segments as a picture: laid end to end in rows, each block in the colour of its class.

Drawn by hand rather than by a plotting library: thousands of rectangles become one path a class.
Only numbers of ours enter it; what the classes are called stands beside it, in the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from leakscope.model.device import MapSegment
from leakscope.model.explanation import BlockClass
from leakscope.report.cuda.words import group_words
from leakscope.report.svg import Drawing, Frame

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
WIDE, NARROW = (1180, 22), (340, 44)
"""Width in pixels, and into how many rows all bytes are parted."""
ROW, GAP, LABEL = 15, 3, 24
SEAM = 1.2
"""Segments wider than four of these are parted by one."""
_FLAT = Frame(0, 1, 0, 1, (0, 1), (0, 1))


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
    for (stream, pool, is_small), inside in groupby(
        segments, key=lambda s: (s.stream, s.pool, s.is_small)
    ):
        labels.append((pen.y + LABEL - 8, group_words(stream, pool, is_small=is_small)))
        pen.x, pen.y = 0.0, pen.y + LABEL
        for segment in inside:
            for place, block in enumerate(segment.blocks):
                pen.draw(block.size, block.kind, is_last=place == len(segment.blocks) - 1)
        pen.y += ROW + GAP
    return Drawing(_svg(pen, labels, key), _FLAT)


def _svg(pen: _Pen, labels: Sequence[tuple[float, str]], key: str) -> str:
    body = [
        f'<path d="{"".join(steps)}" fill="{_fill(kind, key)}"/>'
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
