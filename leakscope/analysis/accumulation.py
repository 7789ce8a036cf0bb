"""The accumulation point: the one container in which growth piles up.

Eclipse MAT's walk down the dominator tree, applied to growth instead of size: from a row that
grows, walk down into each single object that carries growth of its own; stop where growth spreads
over many objects. That is neither the owner of the container nor one of its elements.
"""

from __future__ import annotations

from collections import defaultdict

from leakscope.analysis.growers import Grower
from leakscope.analysis.series import RowTable

SPREAD = 0.5
"""Growth that comes from more objects, not larger ones, to this part lies in their container; so
does growth that the growing children explain to less than this part."""
SMALL_SIBLING = 0.30
SIMILAR_SIBLINGS = 4
"""This many small siblings in one container are one culprit: ``results``, not its keys."""
_CONTAINERS = {"dict", "list", "tuple", "set", "deque"}


def accumulation_points(table: RowTable, growers: dict[int, Grower]) -> list[int]:
    """Return the paths in which growth piles up, given all growing paths of one device."""
    children: dict[int, list[int]] = defaultdict(list)
    tops = []
    for path in growers:
        above = _growing_parent(table, path, growers)
        if above is None:
            tops.append(path)
        else:
            children[above].append(path)
    points = [p for top in tops for p in _descend(top, table, growers, children)]
    return list(dict.fromkeys(points))


def _growing_parent(table: RowTable, path: int, growers: dict[int, Grower]) -> int | None:
    return next((a for a in reversed(table.ancestors(path)) if a in growers), None)


def _descend(
    node: int, table: RowTable, growers: dict[int, Grower], children: dict[int, list[int]]
) -> list[int]:
    gain = growers[node].gained
    below = sorted(children[node], key=lambda child: -growers[child].gained)
    if not below or table.latest[node].kind == "graph":
        return [node]
    if growers[below[0]].spread >= SPREAD and growers[below[0]].gained >= SPREAD * gain:
        return [node]
    single = [child for child in below if growers[child].spread < SPREAD]
    explained = sum(growers[child].gained for child in single)
    if explained < SPREAD * gain or _is_one_culprit(node, single, table, growers):
        return [node]
    return [p for child in single for p in _descend(child, table, growers, children)]


def _is_one_culprit(
    node: int, single: list[int], table: RowTable, growers: dict[int, Grower]
) -> bool:
    small = [c for c in single if growers[c].gained < SMALL_SIBLING * growers[node].gained]
    return table.latest[node].kind in _CONTAINERS and len(small) >= SIMILAR_SIBLINGS
