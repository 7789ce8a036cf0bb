"""Who else holds what a container names and does not keep alive alone.

Emptying such a container frees nothing. A few samples from its middle tell: at its ends stand what
came last and what was kept for another reason. The same rules as ``native/holders.c``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

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

    def holders(self, containers: list[int], may_hold: Callable[[int], bool]) -> list[list[Any]]:
        """Return ``[container, holders…]`` of every sample; holders in the order of the walk.

        Args:
            containers: the user's nodes that may be asked about.
            may_hold: whether a node counts as a holder.

        """
        samples: dict[int, list[Any]] = {}
        for container in filter(self._is_asked_about, containers):
            for shared in self._samples(container):
                samples[shared] = [container]
        for node, targets in enumerate(self._graph.successors):
            for target in targets:
                found = samples.get(target)
                if found is None or not may_hold(node) or node in {*found[1:], target}:
                    continue
                if self._graph.parent[target] != node and len(found) <= MOST_HOLDERS:
                    found.append(node)
        return list(samples.values())

    def _is_asked_about(self, node: int) -> bool:
        reached = self._retained.worth(self._graph, node)
        shared = reached - self._retained.total(node)
        enough = shared >= self._cutoff and shared >= reached // _SHARED_PART
        return enough and len(self._items(node)) >= _FEWEST_ITEMS

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
