"""Who else holds a container, and who else holds what it names and does not keep alive alone.

Emptying such a container frees nothing. A few samples from its middle tell: at its ends stand what
came last and what was kept for another reason. The same rules as ``native/holders.c``.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from leakscope.heap.shallow import mro_of

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

        The keys are the container and the item; a container that is asked about itself is its own.

        Args:
            containers: the user's nodes that may be asked about.
            may_hold: whether a node counts as a holder.

        """
        found: dict[tuple[int, int], list[int]] = {}
        samples: dict[int, list[list[int]]] = defaultdict(list)
        for container in containers:
            for item in self._asked(container):
                holders = found[container, item] = []
                samples[item].append(holders)
        for node, targets in enumerate(self._graph.successors):
            for target in targets:
                if target not in samples or target == node or not may_hold(node):
                    continue
                for holders in samples[target]:
                    told = node in holders or self._graph.parent[target] == node
                    if not told and len(holders) < MOST_HOLDERS:
                        holders.append(node)
        return found

    def _asked(self, container: int) -> Iterator[int]:
        if _gathers(type(self._graph.objects[container])):
            yield container
        enough = len(self._items(container)) >= _FEWEST_ITEMS
        if enough and self._is_asked_about(container):
            yield from dict.fromkeys(self._samples(container))

    def _is_asked_about(self, node: int) -> bool:
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

    Compared by identity: no metaclass is asked.
    """
    return any(base is gathering for base in mro_of(kind) for gathering in (list, dict, set, deque))
