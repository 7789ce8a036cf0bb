"""What groups of objects account for that hold the same things.

Source of how shares are computed: LeakShare of BLeak (Vilk and Berger, PLDI 2018), as LeakCanary's
``LeakShareCalculator.kt`` carries it out. The same rules as ``native/shares.c``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leakscope.heap.reference.selection import Graph

_STAYS = -1
"""Stands among the groups for what is reached past all of them."""


@dataclass(frozen=True)
class Outline:
    """A walked graph without its objects."""

    bytes: list[int]
    device: list[int]
    successors: list[list[int]]
    seeds: list[int]
    devices: int


def outline(graph: Graph, devices: list[str]) -> Outline:
    """Return nodes and edges as numbers only."""
    return Outline(
        bytes=[s + d for s, d in zip(graph.shallow, graph.data, strict=True)],
        device=[devices.index(graph.device(n)) for n in range(len(graph.objects))],
        successors=graph.successors,
        seeds=graph.seeds,
        devices=len(devices),
    )


def leak_shares(
    graph: Outline, groups: list[list[int]]
) -> list[tuple[list[int], list[int], list[int]]]:
    """Return per group its share and its exclusive bytes by device, and whom it shares with."""
    barred = {node for group in groups for node in group}
    reaching: list[set[int]] = [set() for _ in graph.bytes]
    _spread(graph, reaching, _STAYS, [s for s in graph.seeds if s not in barred], barred)
    for number, group in enumerate(groups):
        _spread(graph, reaching, number, group, set())
    outer = _outer(reaching, groups)
    shares = [([0] * graph.devices, [0] * graph.devices, set[int]()) for _ in groups]
    for node, reached_by in enumerate(reaching):
        if _STAYS in reached_by or not graph.bytes[node]:
            continue
        inner = reached_by.difference(*(outer[number] for number in reached_by))
        for number in inner:
            share, exclusive, others = shares[number]
            share[graph.device[node]] += graph.bytes[node] // len(inner)
            exclusive[graph.device[node]] += graph.bytes[node] if len(inner) == 1 else 0
            others |= inner - {number}
    return [(share, exclusive, sorted(others)) for share, exclusive, others in shares]


def _spread(
    graph: Outline, reaching: list[set[int]], number: int, start: Iterable[int], barred: set[int]
) -> None:
    """Note everything that can be reached from ``start`` past what is barred or stays anyway."""
    waiting = list(start)
    for node in waiting:
        reaching[node].add(number)
    while waiting:
        for target in graph.successors[waiting.pop()]:
            if target in barred or number in reaching[target] or _STAYS in reaching[target]:
                continue
            reaching[target].add(number)
            waiting.append(target)


def _outer(reaching: list[set[int]], groups: list[list[int]]) -> list[set[int]]:
    """Return per group those around it: they reach it and are not reached back."""
    reached = [
        {n for node in group for n in reaching[node]} - {number, _STAYS}
        for number, group in enumerate(groups)
    ]
    return [{n for n in by if number not in reached[n]} for number, by in enumerate(reached)]
