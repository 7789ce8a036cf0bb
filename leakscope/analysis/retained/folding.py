"""A tree made small enough for a page: what is smallest is added up, parent by parent."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from leakscope.analysis.retained.tree import Column, Tree
from leakscope.model.retained import NodeKind, RetainedNode

MOST_NODES = 800
MOST_CELLS = 120_000
"""Nodes times censuses times devices."""
_LEAST_NODES = 100


def fold(
    tree: Tree, wanted: Collection[str] = (), cutoff_bytes: int = 0, cells: int = MOST_CELLS
) -> Tree:
    """Return the tree with its heaviest nodes and those of the wanted paths; below each parent the
    others are one node, in whose bytes nothing is lost.

    Contents that never reach the cutoff stay without a name, as they do in a census.
    """
    heights = _heights(tree)
    columns = sum(len(by_device) for by_device in tree.bytes)
    most = max(_LEAST_NODES, min(MOST_NODES, cells // max(1, columns)))
    told = {
        place
        for place, node in enumerate(tree.nodes)
        if heights[place] >= (cutoff_bytes if node.kind is NodeKind.CONTENT else 1)
    }
    asked = [p for p, node in enumerate(tree.nodes) if node.path and node.path in wanted]
    heaviest = sorted(told, key=lambda place: (-heights[place], place))[:most]
    kept = _with_parents(tree, [0, *asked, *heaviest])
    return _folded(tree, sorted(kept), told)


def _heights(tree: Tree) -> list[int]:
    """Return the most that each node held at any census on any device."""
    heights = [0] * len(tree.nodes)
    for by_device in tree.bytes:
        for column in by_device.values():
            heights = [max(h, size or 0) for h, size in zip(heights, column, strict=True)]
    return heights


def _with_parents(tree: Tree, places: Sequence[int]) -> set[int]:
    kept: set[int] = set()
    for place in places:
        above = place
        while above >= 0 and above not in kept:
            kept.add(above)
            above = tree.nodes[above].parent
    return kept


def _folded(tree: Tree, kept: Sequence[int], told: Collection[int]) -> Tree:
    new = {place: number for number, place in enumerate(kept)}
    smaller: dict[int, list[int]] = {}
    for place, node in enumerate(tree.nodes):
        if place in told and place not in new and node.parent in new:
            smaller.setdefault(node.parent, []).append(place)
    nodes = [
        msgspec.structs.replace(tree.nodes[p], parent=new.get(tree.nodes[p].parent, -1))
        for p in kept
    ]
    nodes += [
        RetainedNode(kind=NodeKind.SMALLER, parent=new[parent], count=len(places))
        for parent, places in smaller.items()
    ]
    columns = [
        {
            device: [column[place] for place in kept]
            + [_added(column, places) for places in smaller.values()]
            for device, column in by_device.items()
        }
        for by_device in tree.bytes
    ]
    return Tree(nodes, columns)


def _added(column: Column, places: Collection[int]) -> int | None:
    known = [size for place in places if (size := column[place]) is not None]
    return sum(known) if known else None
