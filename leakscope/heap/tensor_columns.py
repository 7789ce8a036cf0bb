"""Every tensor that a walk reached, as columns: its storage, who holds it, and what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakscope.heap.adapters.memory import HOST, Memory

if TYPE_CHECKING:
    from leakscope.heap.selection import Graph


def tensor_columns(
    graph: Graph, devices: list[str], position: dict[int, int], chosen: set[int]
) -> dict[str, list[int]]:
    """Return the columns of ``Tensors``: every tensor that was reached, with its storage.

    Args:
        graph: what was walked.
        devices: their names, the host first.
        position: the place of each named node in the answer.
        chosen: the selected nodes.

    """
    names = ("storage", "nbytes", "device", "holder", "root", "mark", "flags", "address")
    columns: dict[str, list[int]] = {name: [] for name in names}
    holder: dict[int, int] = {-1: -1}
    for node in graph.order:
        holder[node] = position[node] if node in chosen else holder[graph.parent[node]]
        facts = graph.facts[node]
        if facts is None or not facts.tensor or graph.is_hidden(node):
            continue
        flags = facts.parameter | graph.is_gradient[node] << 1
        flags |= graph.keeps_graph[node] << 2 | graph.by_graph[node] << 3
        flags |= graph.is_frozen[node] << 4
        for own in _storages_of(graph, node) or [-1]:
            storage, nbytes, device, address = _memory_of(graph, own), 0, HOST, 0
            if storage >= 0:
                nbytes, device = graph.shallow[storage] + graph.data[storage], graph.device(storage)
                address = graph.objects[own].address
            values = (storage, nbytes, devices.index(device), holder[node], graph.root[node])
            for name, value in zip(names, (*values, graph.mark[node], flags, address), strict=True):
                columns[name].append(value)
    return columns


def _storages_of(graph: Graph, tensor: int) -> list[int]:
    """Return the nodes of a tensor's storages: one, none, or those of its parts."""
    return [s for s in graph.successors[tensor] if type(graph.objects[s]) is Memory]


def _memory_of(graph: Graph, storage: int) -> int:
    """Return the node that has a storage's memory: that of which it is a part; or -1."""
    parts = graph.successors[storage] if storage >= 0 else []
    return parts[0] if parts else storage
