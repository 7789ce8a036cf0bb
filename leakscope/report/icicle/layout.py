"""Where each box of an icicle stands: shares of the picture's width, and rows from the top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.analysis.retained.weights import Weights
from leakscope.model.retained import NodeKind, RetainedNode

LEAST_SHARE = 0.004
"""Of the width: what is narrower is put together."""
MOST_ROWS = 12
REST = "rest"


@dataclass(frozen=True)
class Box:
    """A piece of the picture. ``node`` is its own, or of what it is the rest of."""

    node: int
    kind: str
    left: float
    width: float
    row: int
    bytes: int
    changed: int
    """All that changed in it, up or down; in a picture of one census its bytes."""
    count: int = 0
    """How many nodes it stands for, where it stands for several small ones."""


def children_of(nodes: Sequence[RetainedNode]) -> list[list[int]]:
    """Return by node those directly below it."""
    found: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes[1:], 1):
        found[node.parent].append(place)
    return found


def lay_out(nodes: Sequence[RetainedNode], weights: Weights) -> list[Box]:
    """Return the boxes of the whole tree, row by row and widest first."""
    whole = weights.widths[0]
    if whole <= 0:
        return []
    below = children_of(nodes)
    boxes = [Box(0, NodeKind.WHOLE.value, 0.0, 1.0, 0, weights.bytes[0] or 0, whole)]
    at = 0
    while at < len(boxes):
        box = boxes[at]
        if box.kind not in {REST, NodeKind.SMALLER.value} and box.row + 1 < MOST_ROWS:
            boxes += _below(box, below[box.node], nodes, weights)
        at += 1
    return boxes


def _below(
    above: Box, children: Sequence[int], nodes: Sequence[RetainedNode], weights: Weights
) -> list[Box]:
    """Return the boxes below one: its children, the small ones together, and what has no name."""
    if not children:
        return []
    scale = above.width / above.changed
    named = sorted(
        (c for c in children if nodes[c].kind is not NodeKind.SMALLER),
        key=lambda c: (-weights.widths[c], c),
    )
    shown = [c for c in named if weights.widths[c] * scale >= LEAST_SHARE]
    small = [c for c in children if c not in shown and weights.widths[c]]
    count = sum(nodes[c].count or 1 for c in small)
    net, changed = _sum(weights, children)
    parts = [
        *((c, nodes[c].kind.value, *_sum(weights, [c]), 0) for c in shown),
        (above.node, NodeKind.SMALLER.value, *_sum(weights, small), count),
        (above.node, REST, above.bytes - net, above.changed - changed, 0),
    ]
    boxes: list[Box] = []
    left = above.left
    for node, kind, size, wide, several in parts:
        width = wide * scale
        if width >= LEAST_SHARE and (boxes or kind != REST):
            boxes.append(Box(node, kind, left, width, above.row + 1, size, wide, several))
            left += width
    return boxes


def _sum(weights: Weights, places: Sequence[int]) -> tuple[int, int]:
    net = sum(weights.bytes[place] or 0 for place in places)
    return net, sum(weights.widths[place] for place in places)
