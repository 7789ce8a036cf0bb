"""Whose memory it is that torch, NumPy and buffers share.

``torch.from_numpy`` keeps an array, and its memory, where no traversal sees. Foreign memory, which
did not come from its holder's own allocator, is settled when the walk is over: it is part of a
Python object's memory, or of other such memory, or maps a file. The same rules as
``native/extents.c``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leakscope.heap.adapters.memory import FILE, HOST, Mappings, Memory, read_mappings

_SMALLEST_MAPPED = 65536
"""The system isn't asked about less."""


@dataclass
class _Extent:
    memory: Memory
    node: int
    owner: int = -1

    @property
    def end(self) -> int:
        return self.memory.address + self.memory.nbytes


def settle_extents(graph: Any, exported: Callable[[object], tuple[int, int]]) -> None:
    """Give foreign memory to whom it belongs, and tell what is no private memory.

    Args:
        graph: what was walked; changed in place.
        exported: returns address and size of the memory that an object owns and lends.

    """
    extents = [
        _Extent(value, node)
        for node, value in enumerate(graph.objects)
        if type(value) is Memory and value.address and value.device == HOST
    ]
    if not any(extent.memory.is_foreign for extent in extents):
        return
    extents.sort(key=_by_address)
    _find_owners(graph, extents, exported)
    _find_containers(extents)
    mappings: Mappings | None = None
    for extent in extents:
        if extent.owner >= 0:
            _give_to_owner(graph, extent)
        elif extent.memory.is_foreign and extent.memory.nbytes >= _SMALLEST_MAPPED:
            mappings = mappings or read_mappings()
            _note_backing(graph, extent, mappings)


def _by_address(extent: _Extent) -> tuple[int, int, bool, int]:
    """Of those that begin alike first the largest, then what is its holder's own."""
    memory = extent.memory
    return memory.address, -memory.nbytes, memory.is_foreign, extent.node


def _find_owners(
    graph: Any, extents: list[_Extent], exported: Callable[[object], tuple[int, int]]
) -> None:
    begins = [extent.memory.address for extent in extents]
    for number in graph.order:
        address, nbytes = exported(graph.objects[number])
        first, end = bisect_left(begins, address), bisect_left(begins, address + nbytes)
        for extent in extents[first:end] if address else ():
            if extent.memory.is_foreign and extent.owner < 0:
                extent.owner = number


def _find_containers(extents: list[_Extent]) -> None:
    """Foreign memory within other memory is part of that."""
    around: _Extent | None = None
    for extent in extents:
        if around is None or extent.end > around.end:
            around = extent
        elif extent.memory.is_foreign and extent.owner < 0:
            extent.owner = around.node if around.owner < 0 else around.owner


def _give_to_owner(graph: Any, extent: _Extent) -> None:
    """Of two phases, the earlier has the memory; within one, an edge says that both hold it."""
    ours, theirs = graph.phase[extent.node], graph.phase[extent.owner]
    if theirs <= ours:
        graph.data[extent.node] = 0
    if theirs == ours:
        graph.successors[extent.node].append(extent.owner)


def _note_backing(graph: Any, extent: _Extent, mappings: Mappings) -> None:
    graph.backing[extent.node] = mappings.backing_of(extent.memory.address)
    if graph.backing[extent.node] == FILE:
        graph.data[extent.node] = 0
