"""Graphs that are made anew in each step: they grow with their inputs and keep nothing.

Of a loss that accumulates, the oldest autograd node was made in the first step that it holds. Where
all of a graph is younger than all that an earlier census had met, nothing of it was kept from
there: sequences that get longer make it larger, and it is freed with the next one.
"""

from __future__ import annotations

from leakscope.analysis.growers import Grower
from leakscope.analysis.series import RowTable


def is_recreated(table: RowTable, g: Grower) -> bool:
    """Return whether it is a graph of which nothing was kept from begin to middle to end."""
    if table.latest[g.path].kind != "graph":
        return False
    places = (0, len(g.columns) // 2, -1)
    begin, middle, end = (table.row_at(g.path, int(g.columns[place])).made for place in places)
    if not (begin and middle and end):
        return False
    return middle[0] > begin[1] and end[0] > middle[1]
