"""A series as one line of block characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the series in at most ``width`` characters; each shows the highest of its stretch."""
    known = [value for value in values if math.isfinite(value)]
    if not known or width < 1:
        return ""
    columns = min(width, len(known))
    peaks = [
        max(known[i * len(known) // columns : (i + 1) * len(known) // columns])
        for i in range(columns)
    ]
    low, span = min(peaks), max(peaks) - min(peaks)
    if span <= 0:
        return BLOCKS[0] * columns
    return "".join(BLOCKS[min(7, int((peak - low) / span * 8))] for peak in peaks)
