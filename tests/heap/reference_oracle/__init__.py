"""The reference walker with all that the native engine answers: what the tests hold that against.

The fallback, ``leakscope.heap.reference``, has a census' core. Here it also reads Arrow,
``io.StringIO``, ctypes and canvases, and says who else holds what, which circles garbage has, what
can't be read, and what groups of containers account for. ``conftest.py`` puts it in the fallback's
place.
"""

from __future__ import annotations

from typing import Any

from leakscope.heap import reference
from leakscope.heap.adapters.buffers import KnownTypes
from leakscope.heap.adapters.tensor import Parts, TensorAccess
from leakscope.heap.reference.selection import (
    Graph,
    Relations,
    RetainedSizes,
    WalkPhase,
    retained_sums,
)
from reference_oracle.reading import FullReader
from reference_oracle.relations import Sharing, circles_among
from reference_oracle.shares import leak_shares, outline
from reference_oracle.unread import find_unread

__all__ = [
    "leak_shares",
    "walk",
]

_MOST_QUERIED = 32
"""Of how much garbage circles are looked for."""


def walk(
    request: Any, access: TensorAccess | None, known: KnownTypes, parts: Parts
) -> dict[str, Any] | None:
    """Return what the native engine would."""
    return reference.walk(request, access, known, parts, reader_type=FullReader, relate=_relate)


def _relate(walker: Any, retained: RetainedSizes, chosen: set[int]) -> Relations:
    graph, request = walker.graph, walker.request
    return Relations(
        holders=_holders(graph, retained, request, chosen),
        circles=_circles(graph, retained, request, chosen),
        unread=_unread(walker, retained),
        outline=outline(graph, retained.devices) if request.keep_graph else None,
    )


def _holders(
    graph: Graph, retained: RetainedSizes, request: Any, chosen: set[int]
) -> dict[tuple[int, int], list[int]]:
    """Return who else holds chosen containers and sampled items of theirs, by both."""
    containers = sorted(n for n in chosen if graph.phase[n] == WalkPhase.USER)

    def may_hold(node: int) -> bool:
        facts = graph.facts[node]
        is_graph = graph.by_graph[node] or facts is None or facts.node is not None
        return graph.phase[node] in {WalkPhase.USER, WalkPhase.LIBRARY} and not is_graph

    return Sharing(graph, retained, request.cutoff_bytes).holders(containers, may_hold)


def _circles(
    graph: Graph, retained: RetainedSizes, request: Any, chosen: set[int]
) -> dict[int, list[int]]:
    """Return the circles of the heaviest garbage by what they keep from being freed."""
    garbage = [n for n in chosen if graph.phase[n] == WalkPhase.GARBAGE]
    garbage.sort(key=lambda n: (-retained.total(n), graph.depth[n], n))
    if not garbage or sum(map(retained.total, garbage)) < max(1, request.circle_bytes):
        return {}
    walked = [n for n in graph.order if graph.phase[n] == WalkPhase.GARBAGE]
    return circles_among(graph, walked, garbage[:_MOST_QUERIED])


def _unread(walker: Any, retained: RetainedSizes) -> dict[str, list[int]]:
    """Return by device and node what of the retained bytes can't be read."""
    own: dict[str, list[int]] = {}
    for node, nbytes in find_unread(walker).items():
        device = walker.graph.device(node)
        own.setdefault(device, [0] * len(retained.dominator))[node] = nbytes
    return {
        device: retained_sums(retained.dominator, retained.order, column)
        for device, column in own.items()
    }
