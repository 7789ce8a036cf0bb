"""The accumulation point: the one container in which growth piles up.

Eclipse MAT's walk down the dominator tree, applied to growth instead of size: from a row that
grows, walk down into each single object that carries growth of its own; stop where growth spreads
over many objects. That is neither the owner of the container nor one of its elements.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise, takewhile

import numpy as np

from leakscope.analysis.growers import Grower
from leakscope.analysis.growth import judge
from leakscope.analysis.growth.policy import ROW_NOISE_BYTES
from leakscope.analysis.series import HOST, RowTable

SPREAD = 0.5
"""Growth that comes from more objects, not larger ones, to this part lies in their container; so
does growth of which this part is in no single object below."""
SMALL_SIBLING = 0.30
SIMILAR_SIBLINGS = 4
"""This many small siblings in one container are one culprit: ``results``, not its keys."""
CONTAINERS = {"dict", "list", "tuple", "set", "deque"}
_TABLES = {"DataFrame", "Series"}
"""What lies below them is how pandas lays out one table: a name that no user wrote."""


def accumulation_points(table: RowTable, growers: dict[int, Grower]) -> list[int]:
    """Return the paths in which growth piles up, given all growing paths of one device."""
    growing: dict[int, list[int]] = defaultdict(list)
    tops = []
    for path in growers:
        above = next((a for a in reversed(table.ancestors(path)) if a in growers), None)
        if above is None:
            tops.append(path)
        else:
            growing[above].append(path)
    walk = _Walk(table, growers, growing, table.children())
    points = [_head_of_chain(table, growers, p) for top in tops for p in walk.down(top)]
    return list(dict.fromkeys(points))


def _head_of_chain(table: RowTable, growers: dict[int, Grower], point: int) -> int:
    """Return what holds the first link, where a point is one of a chain that gets longer.

    ``Tape.last.before.before`` is the third entry of a linked list, ``model.forward⟨forward⟩`` a
    function that was wrapped again: each link that comes leaves the name of the others to it.
    """
    above = [*table.ancestors(point), point]
    links = [table.paths[b].removeprefix(table.paths[a]) for a, b in pairwise(above)]
    alike = list(takewhile(lambda link: link == links[-1], reversed(links)))
    head = above[-1 - len(alike)] if len(alike) > 1 else point
    return head if head in growers else point


@dataclass(frozen=True)
class _Walk:
    table: RowTable
    growers: dict[int, Grower]
    growing: dict[int, list[int]]
    """By path, the growing paths next below."""
    rows: dict[int, list[int]]
    """By path, all rows directly below."""

    def down(self, node: int) -> list[int]:
        """Return the accumulation points at or below a growing path."""
        below = sorted(self.growing[node], key=lambda child: -self.growers[child].gained)
        row = self.table.latest[node]
        if row.kind == "graph" or row.type.rpartition(".")[2] in _TABLES:
            return [node]
        if self.is_spread_below(node, below):
            return [node]
        if self.own_growth(node) >= SPREAD * self.growers[node].gained:
            return [node]
        single = [child for child in below if self.growers[child].spread < SPREAD]
        if self.is_one_culprit(node, single):
            return [node]
        points = [point for child in single for point in self.down(child)]
        # Parts that change by less than what counts may come to more together.
        noise = ROW_NOISE_BYTES * (1 + len(self.rows[node]))
        return points or ([node] if self.growers[node].gained > noise else [])

    def is_spread_below(self, node: int, below: list[int]) -> bool:
        """Return whether most growth is in objects that become more."""
        if not below:
            return False
        largest, gained = self.growers[below[0]], self.growers[node].gained
        return largest.spread >= SPREAD and largest.gained >= SPREAD * gained

    def own_growth(self, node: int) -> float:
        """Return how much of a path's growth is in no single object below it.

        What was added is growth of what it was added to: a module list's new head, a module under
        a new name in a dict of modules, an attribute that ``setattr`` made.
        """
        grower, table = self.growers[node], self.table
        single = [
            p
            for p in self.rows[node]
            if (table.latest[p].count <= 1 and not self._is_added(node, p))
            or (self._holds_no_elements_alone(node, p) and self._gathers(node, p))
        ]
        held = np.nan_to_num(table.retained[grower.device][single][:, grower.columns])
        own = grower.y - held.sum(axis=0)
        trend = judge(grower.x, own, unit="", noise=ROW_NOISE_BYTES)
        if trend.is_open:
            return float(own[-1] - own[0])
        if trend.is_bounded:
            return 0.0
        return trend.bytes_per_unit * float(grower.x[-1] - grower.x[0])

    def _holds_no_elements_alone(self, node: int, row: int) -> bool:
        """Return whether a name leads on from these objects: not the lists in a dict of lists.

        A tuple can gather nothing: what grows in it is below, unless it is the next link of a list.
        """
        holder, held = self.table.latest[node], self.table.latest[row]
        leads_on = held.kind == "tuple" and held.type != holder.type
        return not {holder.kind, held.kind} <= CONTAINERS or leads_on

    def _gathers(self, node: int, row: int) -> bool:
        """Return whether it is less more objects that gather: ``agents[*].memory`` gets longer."""
        columns, table = self.growers[node].columns, self.table
        if row not in self.growers or self.growers[row].spread >= SPREAD:
            return False
        length = np.nan_to_num(table.length[row, columns])
        return bool(length[-1] > length[0]) or any(
            self._gathers(node, below) for below in self.growing[row]
        )

    def _is_added(self, node: int, row: int) -> bool:
        """Return whether a row came later and doesn't grow by itself."""
        first = int(self.growers[node].columns[0])
        is_new = not np.isfinite(self.table.retained[HOST][row, first])
        return is_new and row not in self.growers

    def is_one_culprit(self, node: int, single: list[int]) -> bool:
        """Return whether a container's entries are so many and alike that it is the culprit.

        So is a tuple of values: they are replaced together.
        """
        gained, latest = self.growers[node].gained, self.table.latest
        if latest[node].kind == "tuple" and len(single) > 1:
            return all(latest[child].kind not in CONTAINERS for child in single)
        small = [c for c in single if self.growers[c].gained < SMALL_SIBLING * gained]
        return latest[node].kind in CONTAINERS and len(small) >= SIMILAR_SIBLINGS
