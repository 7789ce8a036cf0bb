"""Graphs that are made anew in each step: they grow with their inputs and keep nothing.

Of a loss that accumulates, the oldest autograd node was made in the first step that it holds. Where
at each census all of a graph is younger than all that the census before had met, nothing of it was
kept from there: sequences that get longer make it larger, and it is freed with the next one.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgspec

from leakscope.analysis.growers import Grower
from leakscope.analysis.series import RowTable
from leakscope.model.trend import TrendVerdict


def made_anew(table: RowTable, g: Grower) -> Grower:
    """Return a grower, as bounded if it is a graph of which nothing was kept between censuses."""
    if table.latest[g.path].kind != "graph" or len(g.columns) < 2:
        return g
    made = [table.row_at(g.path, int(column)).made for column in g.columns]
    if not all(made) or any(later[0] <= earlier[1] for earlier, later in pairwise(made)):
        return g
    trend = msgspec.structs.replace(g.trend, verdict=TrendVerdict.BOUNDED, reason="made anew")
    return replace(g, trend=trend)
