"""Which readings of a gauge lie so near to each other that a line may join them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from leakscope.model.report import Line

NEIGHBOURS = 3
"""So many boundaries may lie between two readings that are joined."""
UNSEEN = 1 / 300
"""A gap of this part of a run is narrower than what a drawing of it can show."""

Points = Sequence[tuple[float, float]]


def moments_of(lines: Sequence[Line]) -> list[float]:
    """Return when the gauge was read that was read most often: the boundaries one knows of."""
    longest = max((line.points for line in lines), key=len, default=[])
    return [second for second, _ in longest]


def begins_anew(points: Points, moments: Sequence[float]) -> list[int]:
    """Return the places of the readings that no line joins to the one before.

    Some gauges cost too much to be read at every boundary: what lies between two of their
    readings nobody knows.

    Args:
        points: seconds and bytes, in their order.
        moments: seconds at which there were boundaries, in their order.

    """
    if not len(moments) or not np.isfinite([moments[0], moments[-1]]).all():
        return []
    shortest = (moments[-1] - moments[0]) * UNSEEN
    return [
        place
        for place, ((before, _), (after, _)) in enumerate(pairwise(points), 1)
        if after - before > shortest
        and bisect_left(moments, after) - bisect_right(moments, before) > NEIGHBOURS
    ]


def stretches_of(points: Points, begins: Sequence[int]) -> list[Points]:
    """Return the readings cut where a stretch begins anew."""
    edges = [0, *begins, len(points)]
    return [points[i:j] for i, j in pairwise(edges) if j > i]
