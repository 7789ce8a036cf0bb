"""Circles among garbage, and who else holds what a container holds.

A circle is the shortest through a selected object, or through the nearest that refers to it:
attributes and items are followed before code. The same rules as ``native/circles.c``.

Emptying a container whose items others hold too frees nothing. A few samples from its middle tell:
at its ends stand what came last and what was kept for another reason. The same rules as
``native/holders.c``.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from leakscope.heap.anatomy import mro
from leakscope.heap.reference.edges import Rank

_LONGEST_CIRCLE = 64
_MOST_EDGES = 1 << 18
"""Followed for all that are looked up."""


def circles_among(graph: Any, walked: list[int], queried: list[int]) -> dict[int, list[int]]:
    """Return the circles of some nodes of garbage.

    Args:
        graph: what was walked.
        walked: all garbage, in the order of the walk.
        queried: the nodes whose circles are looked for, in this order.

    """
    facts = {node: graph.facts[node] for node in walked}
    plain = {n for n, f in facts.items() if f is None or f.rank in {Rank.PLAIN, Rank.LATE}}
    circles = Circles([(node, _edges(graph, node)) for node in walked], plain)
    return {node: circles.of(node) for node in queried}


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
        queue, visited = deque([node]), {node}
        while queue and self._edges < _MOST_EDGES:
            start = queue.popleft()
            circle = self._through(start)
            if circle:
                return circle if len(circle) <= _LONGEST_CIRCLE else []
            for source in self._before.get(start, ()):
                if source not in visited:
                    visited.add(source)
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


SAMPLES = 3
MOST_HOLDERS = 6
_FEWEST_ITEMS = 8
_MOST_STEPS = 4
"""From an item of the container down to what is shared."""
_SHARED_PART = 4
"""Less than this part of what is reached need not be explained."""


class Sharing:
    """The samples of one walk and those that hold them."""

    def __init__(self, graph: Any, retained: Any, cutoff_bytes: int) -> None:
        self._graph = graph
        self._retained = retained
        self._cutoff = cutoff_bytes

    def holders(
        self, containers: list[int], may_hold: Callable[[int], bool]
    ) -> dict[tuple[int, int], list[int]]:
        """Return who else holds a container or an item of it, in the order of the walk.

        The keys are the container and the item; a container that is looked up itself is its own.

        Args:
            containers: the user's nodes that may be asked about.
            may_hold: whether a node counts as a holder.

        """
        found: dict[tuple[int, int], list[int]] = {}
        samples: dict[int, list[list[int]]] = defaultdict(list)
        for container in containers:
            for item in self._queried(container):
                holders = found[container, item] = []
                samples[item].append(holders)
        for node, targets in enumerate(self._graph.successors):
            for target in targets:
                if target not in samples or target == node or not may_hold(node):
                    continue
                for holders in samples[target]:
                    is_named = node in holders or self._graph.parent[target] == node
                    if not is_named and len(holders) < MOST_HOLDERS:
                        holders.append(node)
        return found

    def _queried(self, container: int) -> Iterator[int]:
        if _gathers(type(self._graph.objects[container])):
            yield container
        enough = len(self._items(container)) >= _FEWEST_ITEMS
        if enough and self._is_queried(container):
            yield from dict.fromkeys(self._samples(container))

    def _is_queried(self, node: int) -> bool:
        reached = self._retained.worth(self._graph, node)
        shared = reached - self._retained.total(node)
        return bool(shared >= self._cutoff and shared >= reached // _SHARED_PART)

    def _items(self, container: int) -> list[int]:
        """Return what a container refers to; the same item several times in a row once."""
        return [item for item, _ in groupby(self._graph.successors[container])]

    def _samples(self, container: int) -> list[int]:
        items = self._items(container)
        taken = [items[len(items) * s // (SAMPLES + 1)] for s in range(1, SAMPLES + 1)]
        found = [self._shared_below(container, item) for item in taken]
        return [shared for shared in found if shared is not None]

    def _shared_below(self, container: int, item: int) -> int | None:
        """Return what a container shares by one of its items: the heaviest at each step down."""
        above, graph = container, self._graph
        for _ in range(_MOST_STEPS):
            if graph.parent[item] != above:
                return None
            if not self._keeps_alive(container, item):
                return item
            below = [t for t in graph.successors[item] if graph.parent[t] == item]
            if not below:
                return None
            above, item = item, max(below, key=lambda t: self._retained.worth(graph, t))
        return None

    def _keeps_alive(self, above: int, below: int) -> bool:
        node = self._retained.dominator[below]
        while node >= 0 and node != above:
            node = self._retained.dominator[node]
        return bool(node == above)


def _gathers(kind: type) -> bool:
    """Instances are referred to by much that belongs to them; by such as these things are gathered.

    Compared by identity: no metaclass is called.
    """
    return any(base is gathering for base in mro(kind) for gathering in (list, dict, set, deque))
