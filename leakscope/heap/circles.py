"""Circles of references that keep garbage from being freed at once.

For what is selected, the shortest through it, or through the nearest that refers to it: attributes
and items are followed before code. The same rules as ``native/circles.c``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from leakscope.heap.edges import Rank

_LONGEST_CIRCLE = 64
_MOST_EDGES = 1 << 18
"""Followed for all that are asked about."""


def circles_among(graph: Any, walked: list[int], asked: list[int]) -> dict[int, list[int]]:
    """Return the circles of some nodes of garbage.

    Args:
        graph: what was walked.
        walked: all garbage, in the order of the walk.
        asked: the nodes whose circles are looked for, in this order.

    """
    facts = {node: graph.facts[node] for node in walked}
    plain = {n for n, f in facts.items() if f is None or f.rank in {Rank.PLAIN, Rank.LATE}}
    circles = Circles([(node, _edges(graph, node)) for node in walked], plain)
    return {node: circles.of(node) for node in asked}


def _edges(graph: Any, node: int) -> list[int]:
    """A tensor's edge to itself stands for one that leads nowhere."""
    facts, targets = graph.facts[node], graph.successors[node]
    return [t for t in targets if t != node or facts is None or not facts.tensor]


class Circles:
    """Who refers to whom among garbage, turned round."""

    def __init__(self, edges: Sequence[tuple[int, Sequence[int]]], plain: set[int]) -> None:
        """Take nodes with what they refer to, in the order of the walk.

        Args:
            edges: of garbage alone.
            plain: the nodes that are no code and no graph.

        """
        self._before: dict[int, list[int]] = {}
        self._edges = 0
        for is_plain in (True, False):
            for source, targets in edges:
                if (source in plain) is is_plain:
                    for target in dict.fromkeys(targets):
                        self._before.setdefault(target, []).append(source)

    def of(self, node: int) -> list[int]:
        """Return the nodes on the circle of a node, each with a reference to the next.

        It begins at the node itself, if that is on it; it is empty where none was found.
        """
        queue, met = deque([node]), {node}
        while queue and self._edges < _MOST_EDGES:
            start = queue.popleft()
            circle = self._through(start)
            if circle:
                return circle if len(circle) <= _LONGEST_CIRCLE else []
            for source in self._before.get(start, ()):
                if source not in met:
                    met.add(source)
                    queue.append(source)
        return []

    def _through(self, start: int) -> list[int]:
        """Search backwards from a node for itself."""
        queue, after = deque([start]), {start: start}
        while queue:
            node = queue.popleft()
            for source in self._before.get(node, ()):
                if self._edges >= _MOST_EDGES:
                    return []
                self._edges += 1
                if source == start:
                    return _way(start, node, after)
                if source not in after:
                    after[source] = node
                    queue.append(source)
        return []


def _way(start: int, node: int, after: dict[int, int]) -> list[int]:
    found = [start]
    while node != start:
        found.append(node)
        node = after[node]
    return found
