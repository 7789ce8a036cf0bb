"""The walk in plain Python: the fallback where nothing was compiled, the native engine's oracle.

Source of how shares are computed: LeakShare of BLeak (Vilk and Berger, PLDI 2018), as LeakCanary's
``LeakShareCalculator.kt`` carries it out.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from leakscope.heap.adapters.memory import KnownTypes, Memory
from leakscope.heap.adapters.tensor import MOST_OPAQUE, Parts, TensorAccess
from leakscope.heap.pausing import others_change_autograd
from leakscope.heap.reference.edges import EdgeReader, Payload, Rank
from leakscope.heap.reference.relations import LONGEST_CHAIN, has_long_chain, settle_extents
from leakscope.heap.reference.selection import Graph, WalkPhase, answer
from leakscope.heap.reference.unread import find_unread

__all__ = [
    "leak_shares",
    "walk",
]


_MOST_REFERRERS = 8
_WAITING = (WalkPhase.BARRIER, WalkPhase.HIDDEN)


def walk(
    request: Any, access: TensorAccess | None, known: KnownTypes, parts: Parts
) -> dict[str, Any] | None:
    """Walk as asked and return the columns of a ``WalkResult``; see :mod:`leakscope.heap.graph`."""
    began = perf_counter()
    autograd_changes = access is not None and others_change_autograd(request.own_passes)
    if autograd_changes and request.needs_autograd:
        return None
    everything = gc.get_objects() if request.full else []
    enabled = gc.isenabled()
    try:
        gc.disable()
        reader = EdgeReader(
            access,
            known,
            request.marked_types,
            request.late_types,
            parts,
            reads_autograd=not autograd_changes,
        )
        walker = _Walker(request, reader)
        walker.graph.graph_truncated = autograd_changes
        walker.walk_user()
        if request.full:
            walker.walk_rest(everything)
        settle_extents(walker.graph, reader.exported_memory)
        find_unread(walker.graph, access, known.array, walker.node_of, everything, reader.has_parts)
        columns = answer(walker.graph, request, walker.pinned())
        if request.keep_graph:
            columns["graph"] = outline(walker.graph, columns["devices"])
    finally:
        if enabled:
            gc.enable()
    columns["opaque"] = walker.opaque()
    columns["pause_s"] = perf_counter() - began
    columns["scratch_bytes"] = walker.scratch_bytes()
    return columns


class _Walker:
    """Breadth-first from the roots, phase by phase; a phase enters nothing of an earlier one."""

    def __init__(self, request: Any, reader: EdgeReader) -> None:
        self._request = request
        self._reader = reader
        self.graph = Graph()
        self._index: dict[int, int] = {}
        self._queues: tuple[deque[int], ...] = (deque(), deque(), deque(), deque())
        self._phase = WalkPhase.USER
        self._made: deque[int] = deque()
        self._measured = 0
        self.referrers: dict[int, list[int]] = {id(value): [] for value in request.pinned}

    def scratch_bytes(self) -> int:
        """Return an estimate of the walk's own memory."""
        columns = self.graph
        per_node = 8 * 14 + 100
        return per_node * len(columns.objects) + 8 * sum(len(e) for e in columns.successors)

    def walk_user(self) -> None:
        """Walk from the user's roots; library roots, barriers and hidden objects stay outside."""
        roots = self._request.roots
        first = len(roots) if self._request.library_from is None else self._request.library_from
        request = self._request
        hidden = [request, roots, request.barriers, request.hidden, request.pinned]
        for value in [*hidden, *request.hidden]:
            self._reserve(value, WalkPhase.HIDDEN)
        for value in self._request.barriers:
            self._reserve(value, WalkPhase.BARRIER)
        stages = set(self._request.stages)
        for i, value in enumerate(roots[:first]):
            if i in stages:
                self._drain(everything=False)
            self._seed(value, i)
        self._drain()

    def walk_rest(self, everything: list[object]) -> None:
        """Walk from library roots, from barriers, from our own, and then whatever is left."""
        request = self._request
        self._phase = WalkPhase.LIBRARY
        if request.library_from is not None:
            for i in range(request.library_from, len(request.roots)):
                self._seed(request.roots[i], i)
        self._drain()
        self._walk_from(WalkPhase.OTHER, self._waiting(WalkPhase.BARRIER))
        self._walk_from(WalkPhase.HIDDEN, self._waiting(WalkPhase.HIDDEN))
        for value in self._reader.given():
            self._reserve(value, WalkPhase.HIDDEN)
        kept_by_native = self._kept_by_native_code(everything)
        kept = [value for value in kept_by_native if self._is_kept_by_torch(value)]
        self._walk_from(
            WalkPhase.NATIVE, [v for v in kept_by_native if not self._is_kept_by_torch(v)]
        )
        self._walk_each(WalkPhase.NATIVE, kept)
        for are_kept in (False, True):
            garbage = [v for v in everything if self._is_kept_by_torch(v) == are_kept]
            self._walk_each(WalkPhase.GARBAGE, garbage)

    def _walk_each(self, phase: WalkPhase, values: list[object]) -> None:
        """Walk from one value after the other; not from storages whose memory tensors led to."""
        for value in values:
            if id(value) not in self._index and self._has_met(value):
                self._reserve(value, WalkPhase.HIDDEN)
            else:
                self._walk_from(phase, [value])

    def _walk_from(self, phase: WalkPhase, values: list[object]) -> None:
        self._phase = phase
        for value in values:
            self._seed(value, phase.root)
        self._drain()

    def _waiting(self, phase: WalkPhase) -> list[object]:
        columns = zip(self.graph.objects, self.graph.phase, strict=True)
        return [value for value, waiting in columns if waiting == phase]

    def _kept_by_native_code(self, everything: list[object]) -> list[object]:
        """Return the unreached objects with more references than unreached objects hold."""
        left = [o for o in everything if id(o) not in self._index and o is not everything]
        ours = _reference_counts([object()])[0] + 1  # the list of everything is one more
        counts = _reference_counts(left)
        references = {id(o): count - ours for o, count in zip(left, counts, strict=True)}
        for value in left:
            for target in self._everything_below(value):
                if id(target) in references:
                    references[id(target)] -= 1
        for storage in {id(s) for s in map(self._reader.storage_of, left) if s is not None}:
            if storage in references:  # held once by the memory that all its tensors share
                references[storage] -= 1
        return [o for o in left if references[id(o)] > 0]

    def _is_kept_by_torch(self, value: object) -> bool:
        """Say whether torch keeps the Python object of what lives in C++ and is told of by others:
        it does so of each that was ever asked for.
        """
        facts = self._reader.facts(value)
        return facts.rank is Rank.GRAPH or facts.payload is Payload.STORAGE

    def _has_met(self, value: object) -> bool:
        """Say whether the memory of a storage was met already."""
        if self._reader.facts(value).payload is not Payload.STORAGE:
            return False
        memory = [r for r in self._reader.referents(value, everything=True) if type(r) is Memory]
        return any(_key(one) in self._index for one in memory)

    def _everything_below(self, value: object) -> list[object]:
        if self._reader.facts(value).rank is Rank.GRAPH:
            return gc.get_referents(value)  # all else belongs to C++, as the node itself
        found = self._reader.referents(value, everything=True)
        if self._reader.facts(value).tensor and self._may_query_graph():
            found.append(self._reader.maker(value))
        return found

    def _seed(self, value: object, root: int) -> None:
        node = self._index.get(id(value))
        if node is None:
            node = self._add(value, -1, root)
        elif self.graph.phase[node] != WalkPhase.BARRIER and not self._enterable(node):
            return
        self.graph.take(node, self._phase, root)
        late = self._reader.facts(value).rank is Rank.LATE
        self._queues[Rank.LATE if late else Rank.PLAIN].append(node)

    def _enterable(self, node: int) -> bool:
        """Whether a node waits to be entered: reserved for this phase or a former barrier."""
        phase = self.graph.phase[node]
        if phase == WalkPhase.BARRIER:
            return self._phase >= WalkPhase.LIBRARY
        return phase == WalkPhase.HIDDEN == self._phase and not self.graph.entered[node]

    def _reserve(self, value: object, phase: WalkPhase) -> None:
        if id(value) not in self._index:
            self.graph.phase[self._add(value, -1, phase.root)] = phase

    def _add(self, value: object, parent: int, root: int) -> int:
        node = self.graph.add(value, parent, root, self._phase)
        self._index[_key(value)] = node
        if type(value) is not Memory:
            facts = self._reader.facts(value)
            shallow, data = self._reader.own_bytes(value)
            self.graph.describe(node, facts, shallow, data)
        return node

    def _drain(self, *, everything: bool = True) -> None:
        """Enter what waits; between two stages what is late and the graphs go on waiting.

        What made a tensor is asked for when all else is known, and one tensor after the other: so
        a graph is walked, and measured, before the next is touched.
        """
        queues = self._queues if everything else self._queues[: Rank.LATE]
        while True:
            while queue := _first_filled(queues):
                self._enter(queue.popleft())
            if not (everything and self._made):
                return
            self._follow_maker(self._made.popleft())

    def _enter(self, node: int) -> None:
        graph, value = self.graph, self.graph.objects[node]
        graph.enter(node)
        if type(value) is Memory:
            return
        facts = self._reader.facts(value)
        if facts.node is not None and not self._may_query_graph():
            graph.graph_truncated = True
            return
        graph.graph_count += facts.node is not None
        for target in self._reader.referents(value, everything=not self._cuts()):
            self._follow(node, target)
        if facts.tensor:
            self._mark_gradient(value)
            if not self._reader.is_leaf(value):
                graph.keeps_graph[node] = True
                graph.successors[node].append(node)  # the place of its maker
                self._made.append(node)

    def _follow_maker(self, node: int) -> None:
        graph = self.graph
        if not self._may_query_graph():
            graph.graph_truncated = True
            return
        place = len(graph.successors[node]) - 1
        maker = self._reader.maker(graph.objects[node])
        if maker is not None:
            self._follow(node, maker)
        if len(graph.successors[node]) > place + 1:
            del graph.successors[node][place]

    def _may_query_graph(self) -> bool:
        """Say whether autograd may be asked for one more node: see ``native/chains.c``."""
        graph = self.graph
        if not self._reader.reads_autograd:
            return False
        if graph.graph_is_deep or graph.graph_count >= self._request.graph_budget:
            return False
        if graph.graph_count >= self._measured + LONGEST_CHAIN:
            self._measured = graph.graph_count
            graph.graph_is_deep = has_long_chain(graph.successors, graph.autograd_nodes())
        return not graph.graph_is_deep

    def _mark_gradient(self, tensor: object) -> None:
        gradient = self._reader.gradient(tensor)
        if gradient is not None and id(gradient) in self._index:
            node = self._index[id(gradient)]
            self.graph.is_gradient[node] = True
            self.graph.is_frozen[node] |= self._reader.is_frozen(tensor)

    def _note_referrer(self, node: int, target: object) -> None:
        """That an instance refers to its class, and an object to itself, says nothing."""
        value, known = self.graph.objects[node], self.referrers.get(id(target))
        if known is None or self._phase is WalkPhase.HIDDEN or value is target:
            return
        if type(value) is not target and node not in known and len(known) < _MOST_REFERRERS:
            known.append(node)

    def node_of(self, value: object) -> int | None:
        """Return the number of an object's node; None where it was not met."""
        return self._index.get(id(value))

    def opaque(self) -> list[object]:
        """Return the tensors whose memory was not told."""
        graph = self.graph
        found = (
            graph.objects[n]
            for n in graph.order
            if graph.phase[n] != WalkPhase.HIDDEN and self._reader.is_opaque(graph.objects[n])
        )
        return list(itertools.islice(found, MOST_OPAQUE))

    def pinned(self) -> dict[int, list[int]]:
        """Return the nodes of what is pinned and was reached, and the nodes that refer to each."""
        found = {}
        for key, referrers in self.referrers.items():
            node = self._index.get(key, -1)
            if (
                node >= 0
                and self.graph.entered[node]
                and self.graph.phase[node] != WalkPhase.HIDDEN
            ):
                found[node] = referrers
        return found

    def _follow(self, node: int, target: object) -> None:
        graph = self.graph
        if self.referrers:
            self._note_referrer(node, target)
        found = self._index.get(_key(target))
        if found is None:
            rank = self._rank(target)
            if rank is Rank.CUT and self._cuts():
                if self._phase is WalkPhase.USER and self._request.full:
                    self._reserve(target, WalkPhase.BARRIER)
                return
            found = self._add(target, node, graph.root[node])
            self._queue(rank).append(found)
        elif graph.phase[found] in _WAITING and self._enterable(found):
            graph.take(found, self._phase, graph.root[node], node)
            self._queue(self._rank(target)).append(found)
        if graph.phase[found] is self._phase:
            graph.successors[node].append(found)

    def _rank(self, target: object) -> Rank:
        return Rank.PLAIN if type(target) is Memory else self._reader.facts(target).rank

    def _cuts(self) -> bool:
        """Whether types, modules and namespaces are out of bounds now."""
        return self._phase is WalkPhase.USER or self._phase is WalkPhase.HIDDEN

    def _queue(self, rank: Rank) -> deque[int]:
        return self._queues[0 if rank is Rank.CUT else rank]


def _key(value: object) -> int:
    """Return what tells a node from others; addresses of storages are no addresses of objects."""
    return value.key | 1 if type(value) is Memory else id(value)


def _first_filled(queues: Sequence[deque[int]]) -> deque[int] | None:
    for queue in queues:
        if queue:
            return queue
    return None


def _reference_counts(values: list[object]) -> list[int]:
    return [sys.getrefcount(value) for value in values]


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
