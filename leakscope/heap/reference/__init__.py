"""The walk in plain Python: the fallback where nothing was compiled.

It has a census' core: names, retained sizes, tensors, arrays, mappings and images. Of what the
native engine answers besides it knows nothing: shares, other holders, circles, what can't be read,
Arrow, ``io.StringIO``, ctypes; and every walk is a whole one. ``tests/heap/reference_oracle`` adds
that, to hold the native engine against it.

To ask for a node of an autograd graph makes a Python object for it, which the node then keeps for
life, and torch frees nodes that have one by recursion: some 190 bytes of stack for each node in a
row. A chain of fifty thousand, which a program may well make and torch alone frees without
recursion, would then crash the program. So a chain is measured while it is read, and left
alone beyond that. ``python benchmarks/heap/graphs.py`` measures what asking costs: the time a node,
and some hundred bytes left behind with each.
"""

from __future__ import annotations

import gc
import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from leakscope.heap.adapters.buffers import (
    FILE,
    HOST,
    KnownTypes,
    Mappings,
    Memory,
    read_mappings,
    reference_counts,
)
from leakscope.heap.adapters.tensor import MOST_OPAQUE, Parts, TensorAccess
from leakscope.heap.pausing import others_change_autograd
from leakscope.heap.reference.edges import EdgeReader, Payload, Rank
from leakscope.heap.reference.selection import Graph, Relate, WalkPhase, answer

LONGEST_CHAIN = 5000
"""Autograd nodes in a row; where a chain is longer, no more of it is read."""
_MOST_REFERRERS = 8
_WAITING = (WalkPhase.BARRIER, WalkPhase.HIDDEN)


def walk(
    request: Any,
    access: TensorAccess | None,
    known: KnownTypes,
    parts: Parts,
    *,
    reader_type: type[EdgeReader] = EdgeReader,
    relate: Relate | None = None,
) -> dict[str, Any] | None:
    """Walk and return the columns of a ``WalkResult``; see :mod:`leakscope.heap.graph`.

    ``parts`` is what tensors consist of. The oracle's ``reader_type`` sees more, and ``relate``
    finds what the fallback doesn't.

    """
    began = perf_counter()
    autograd_changes = access is not None and others_change_autograd(request.own_passes)
    if autograd_changes and request.needs_autograd:
        return None
    everything = gc.get_objects() if request.full else []
    enabled = gc.isenabled()
    try:
        gc.disable()
        reader = reader_type(
            access,
            known,
            request.marked_types,
            request.late_types,
            parts,
            reads_autograd=not autograd_changes,
        )
        walker = Walker(request, reader, everything)
        walker.graph.graph_truncated = autograd_changes
        walker.walk_user()
        if request.full:
            walker.walk_rest()
        settle_extents(walker.graph, reader.exported_memory)
        columns = answer(walker, relate)
    finally:
        if enabled:
            gc.enable()
    columns["opaque"] = walker.opaque()
    columns["pause_s"] = perf_counter() - began
    columns["scratch_bytes"] = walker.scratch_bytes()
    return columns


class Walker:
    """Breadth-first from the roots, phase by phase; a phase enters nothing of an earlier one."""

    def __init__(self, request: Any, reader: EdgeReader, everything: list[object]) -> None:
        self.request = request
        self.reader = reader
        self.everything = everything
        """Our own list of what the collector tracks; empty unless the walk is a full one."""
        self.graph = Graph()
        self.index: dict[int, int] = {}
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
        roots = self.request.roots
        first = len(roots) if self.request.library_from is None else self.request.library_from
        request = self.request
        hidden = [request, roots, request.barriers, request.hidden, request.pinned]
        for value in [*hidden, *request.hidden]:
            self._reserve(value, WalkPhase.HIDDEN)
        for value in self.request.barriers:
            self._reserve(value, WalkPhase.BARRIER)
        stages = set(self.request.stages)
        for i, value in enumerate(roots[:first]):
            if i in stages:
                self._drain(everything=False)
            self._seed(value, i)
        self._drain()

    def walk_rest(self) -> None:
        """Walk from library roots, from barriers, from our own, and then whatever is left."""
        request = self.request
        self._phase = WalkPhase.LIBRARY
        if request.library_from is not None:
            for i in range(request.library_from, len(request.roots)):
                self._seed(request.roots[i], i)
        self._drain()
        self._walk_from(WalkPhase.OTHER, self._waiting(WalkPhase.BARRIER))
        self._walk_from(WalkPhase.HIDDEN, self._waiting(WalkPhase.HIDDEN))
        for value in self.reader.handed_in():
            self._reserve(value, WalkPhase.HIDDEN)
        kept_by_native = self._kept_by_native_code()
        kept = [value for value in kept_by_native if self._is_kept_by_torch(value)]
        self._walk_from(
            WalkPhase.NATIVE, [v for v in kept_by_native if not self._is_kept_by_torch(v)]
        )
        self._walk_each(WalkPhase.NATIVE, kept)
        for are_kept in (False, True):
            garbage = [v for v in self.everything if self._is_kept_by_torch(v) == are_kept]
            self._walk_each(WalkPhase.GARBAGE, garbage)

    def _walk_each(self, phase: WalkPhase, values: list[object]) -> None:
        """Walk from one value after the other; not from storages whose memory tensors led to."""
        for value in values:
            if id(value) not in self.index and self._is_known(value):
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

    def _kept_by_native_code(self) -> list[object]:
        """Return the unreached objects with more references than unreached objects hold."""
        everything = self.everything
        left = [o for o in everything if id(o) not in self.index and o is not everything]
        ours = reference_counts([object()])[0] + 1  # the list of everything is one more
        counts = reference_counts(left)
        references = {id(o): count - ours for o, count in zip(left, counts, strict=True)}
        for value in left:
            for target in self._everything_below(value):
                if id(target) in references:
                    references[id(target)] -= 1
        for storage in {id(s) for s in map(self.reader.storage_of, left) if s is not None}:
            if storage in references:  # held once by the memory that all its tensors share
                references[storage] -= 1
        for value in left:  # one that a graph in C++ holds as well is no garbage
            if self.reader.facts(value).rank is Rank.GRAPH and references[id(value)] <= 0:
                for leaf in self.reader.leaf_alone(value):
                    if id(leaf) in references:
                        references[id(leaf)] -= 1
        return [o for o in left if references[id(o)] > 0]

    def _is_kept_by_torch(self, value: object) -> bool:
        """Return whether torch keeps the Python object of what lives in C++ and others report:
        it does so of each that was ever read.
        """
        facts = self.reader.facts(value)
        return facts.rank is Rank.GRAPH or facts.payload is Payload.STORAGE

    def _is_known(self, value: object) -> bool:
        if self.reader.facts(value).payload is not Payload.STORAGE:
            return False
        memory = [r for r in self.reader.referents(value, everything=True) if type(r) is Memory]
        return any(_key(region) in self.index for region in memory)

    def _everything_below(self, value: object) -> list[object]:
        if self.reader.facts(value).rank is Rank.GRAPH:
            return gc.get_referents(value)  # all else belongs to C++, as the node itself
        found = self.reader.referents(value, everything=True)
        if self.reader.facts(value).tensor and self._may_query_graph():
            found.append(self.reader.maker(value))
        return found

    def _seed(self, value: object, root: int) -> None:
        node = self.index.get(id(value))
        if node is None:
            node = self._add(value, -1, root)
        elif self.graph.phase[node] != WalkPhase.BARRIER and not self._enterable(node):
            return
        self.graph.take(node, self._phase, root)
        late = self.reader.facts(value).rank is Rank.LATE
        self._queues[Rank.LATE if late else Rank.PLAIN].append(node)

    def _enterable(self, node: int) -> bool:
        """Whether a node waits to be entered: reserved for this phase or a former barrier."""
        phase = self.graph.phase[node]
        if phase == WalkPhase.BARRIER:
            return self._phase >= WalkPhase.LIBRARY
        return phase == WalkPhase.HIDDEN == self._phase and not self.graph.entered[node]

    def _reserve(self, value: object, phase: WalkPhase) -> None:
        if id(value) not in self.index:
            self.graph.phase[self._add(value, -1, phase.root)] = phase

    def _add(self, value: object, parent: int, root: int) -> int:
        node = self.graph.add(value, parent, root, self._phase)
        self.index[_key(value)] = node
        if type(value) is not Memory:
            self.graph.facts[node] = self.reader.facts(value)
            self.graph.shallow[node], self.graph.data[node] = self.reader.own_bytes(value)
        return node

    def _drain(self, *, everything: bool = True) -> None:
        """Enter what waits; between two stages what is late and the graphs go on waiting.

        What made a tensor is read when all else is known, and one tensor after the other: so
        a graph is walked, and measured, before the next is touched.
        """
        queues = self._queues if everything else self._queues[: Rank.LATE]
        while True:
            while queue := next(filter(None, queues), None):
                self._enter(queue.popleft())
            if not (everything and self._made):
                return
            self._follow_maker(self._made.popleft())

    def _enter(self, node: int) -> None:
        graph, value = self.graph, self.graph.objects[node]
        graph.enter(node)
        if type(value) is Memory:
            return
        facts = self.reader.facts(value)
        if facts.node is not None and not self._may_query_graph():
            graph.graph_truncated = True
            return
        graph.graph_count += facts.node is not None
        for target in self.reader.referents(value, everything=not self._cuts()):
            self._follow(node, target)
        if facts.tensor:
            self._mark_gradient(value)
            if not self.reader.is_leaf(value):
                graph.keeps_graph[node] = True
                graph.successors[node].append(node)  # the place of its maker
                self._made.append(node)

    def _follow_maker(self, node: int) -> None:
        graph = self.graph
        if not self._may_query_graph():
            graph.graph_truncated = True
            return
        place = len(graph.successors[node]) - 1
        maker = self.reader.maker(graph.objects[node])
        if maker is not None:
            self._follow(node, maker)
        if len(graph.successors[node]) > place + 1:
            del graph.successors[node][place]

    def _may_query_graph(self) -> bool:
        """Say whether autograd may be read for one more node: see ``native/chains.c``."""
        graph = self.graph
        if not self.reader.reads_autograd:
            return False
        if graph.graph_is_deep or graph.graph_count >= self.request.graph_budget:
            return False
        if graph.graph_count >= self._measured + LONGEST_CHAIN:
            self._measured = graph.graph_count
            nodes = {n for n, f in enumerate(graph.facts) if f is not None and f.node is not None}
            length: dict[int, int] = {}
            graph.graph_is_deep = any(
                _is_deep(start, graph.successors, nodes, length) for start in sorted(nodes)
            )
        return not graph.graph_is_deep

    def _mark_gradient(self, tensor: object) -> None:
        gradient = self.reader.gradient(tensor)
        if gradient is not None and id(gradient) in self.index:
            node = self.index[id(gradient)]
            self.graph.is_gradient[node] = True
            self.graph.is_frozen[node] |= self.reader.is_frozen(tensor)

    def _note_referrer(self, node: int, target: object) -> None:
        """That an instance refers to its class, and an object to itself, says nothing."""
        value, known = self.graph.objects[node], self.referrers.get(id(target))
        if known is None or self._phase is WalkPhase.HIDDEN or value is target:
            return
        if type(value) is not target and node not in known and len(known) < _MOST_REFERRERS:
            known.append(node)

    def opaque(self) -> list[object]:
        """Return the tensors whose memory was not reported."""
        graph = self.graph
        found = (
            graph.objects[n]
            for n in graph.order
            if graph.phase[n] != WalkPhase.HIDDEN and self.reader.is_opaque(graph.objects[n])
        )
        return list(itertools.islice(found, MOST_OPAQUE))

    def pinned(self) -> dict[int, list[int]]:
        """Return the nodes of what is pinned and was reached, and the nodes that refer to each."""
        graph = self.graph
        found = {self.index.get(key, -1): referrers for key, referrers in self.referrers.items()}
        return {
            node: referrers
            for node, referrers in found.items()
            if node >= 0 and graph.entered[node] and graph.phase[node] != WalkPhase.HIDDEN
        }

    def _follow(self, node: int, target: object) -> None:
        graph = self.graph
        if self.referrers:
            self._note_referrer(node, target)
        found = self.index.get(_key(target))
        if found is None:
            rank = self._rank(target)
            if rank is Rank.CUT and self._cuts():
                if self._phase is WalkPhase.USER and self.request.full:
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
        return Rank.PLAIN if type(target) is Memory else self.reader.facts(target).rank

    def _cuts(self) -> bool:
        """Whether types, modules and namespaces are out of bounds now."""
        return self._phase is WalkPhase.USER or self._phase is WalkPhase.HIDDEN

    def _queue(self, rank: Rank) -> deque[int]:
        return self._queues[0 if rank is Rank.CUT else rank]


def _key(value: object) -> int:
    """Return what tells a node from others; addresses of storages are no addresses of objects."""
    return value.key | 1 if type(value) is Memory else id(value)


def _is_deep(
    start: int, successors: list[list[int]], graph: set[int], length: dict[int, int]
) -> bool:
    """Measure a node and all below it, deepest first; say whether a chain is too long."""
    path = [] if start in length else [(start, iter(successors[start]))]
    opened = {node for node, _ in path}
    while path:
        node, targets = path[-1]
        unseen = (t for t in targets if t in graph and t not in opened and t not in length)
        below = next(unseen, None)
        if below is not None:
            opened.add(below)
            path.append((below, iter(successors[below])))
            continue
        path.pop()
        length[node] = 1 + max((length.get(t, 0) for t in successors[node]), default=0)
        if length[node] >= LONGEST_CHAIN:
            return True
    return False


_SMALLEST_MAPPED = 65536
"""The system isn't queried for less."""


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

    The graph is changed in place; ``exported`` returns address and size of what an object lends.
    """
    extents = [
        _Extent(value, node)
        for node, value in enumerate(graph.objects)
        if type(value) is Memory and value.address and value.device == HOST
    ]
    if not any(extent.memory.is_foreign for extent in extents):
        return
    # Of those that begin alike first the largest, then what is its holder's own.
    extents.sort(key=lambda e: (e.memory.address, -e.memory.nbytes, e.memory.is_foreign, e.node))
    _find_owners(graph, extents, exported)
    _find_containers(extents)
    mappings: Mappings | None = None
    for extent in extents:
        node, owner, memory = extent.node, extent.owner, extent.memory
        if owner >= 0:
            # Of two phases, the earlier has the memory; within one, an edge says that both hold it.
            if graph.phase[owner] <= graph.phase[node]:
                graph.data[node] = 0
            if graph.phase[owner] == graph.phase[node]:
                graph.successors[node].append(owner)
        elif memory.is_foreign and memory.nbytes >= _SMALLEST_MAPPED:
            mappings = mappings or read_mappings()
            graph.backing[node] = mappings.backing_of(memory.address)
            if graph.backing[node] == FILE:
                graph.data[node] = 0


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
