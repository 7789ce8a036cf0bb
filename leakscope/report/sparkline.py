"""A series as one line of block characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leakscope.report.sizes import humane_bytes

BLOCKS = "▁▂▃▄▅▆▇█"
_BEGIN = 20
"""So small a part of a course is its begin."""
_SHORT = 3


def sparkline(
    values: Sequence[float], width: int, bounds: tuple[float, float] | None = None
) -> str:
    """Return the series in at most ``width`` characters; each shows the highest of its stretch.

    ``bounds`` are the values of the lowest and of the highest block, for curves of one scale.
    """
    peaks = peaks_of(values, width)
    if not peaks:
        return ""
    low, high = bounds or (min(peaks), max(peaks))
    span = high - low
    if span <= 0:
        return BLOCKS[0] * len(peaks)
    return "".join(BLOCKS[max(0, min(7, int((peak - low) / span * 8)))] for peak in peaks)


def settled(values: Sequence[float]) -> Sequence[float]:
    """Return a course without its begin, where the interpreter starts up and imports: so low that
    beside it all that comes later would look alike.
    """
    return values[max(1, len(values) // _BEGIN) :] if len(values) > _SHORT else values


def curve_with_ends(
    values: Sequence[float], width: int, bounds: tuple[float, float] | None = None
) -> str:
    """Return a curve of memory, where it begins, the height at which it is seen to end, its peak.

    That height is the highest of the last stretch, as the curve shows it: what a run gives back as
    it ends would belie a curve that rises to the last.
    """
    peaks = peaks_of(values, width)
    if not peaks:
        return ""
    first = next(value for value in values if math.isfinite(value))
    return (
        f"{sparkline(values, width, bounds)} {humane_bytes(first)} → {humane_bytes(peaks[-1])}, "
        f"peak {humane_bytes(max(peaks))}"
    )


def peaks_of(values: Sequence[float], width: int) -> list[float]:
    """Return the highest value of each of at most ``width`` equal stretches."""
    known = [value for value in values if math.isfinite(value)]
    columns = min(max(width, 0), len(known))
    return [
        max(known[i * len(known) // columns : (i + 1) * len(known) // columns])
        for i in range(columns)
    ]
