"""From selected objects to rows: objects that share a path become one row.

Each link of a chain, such as the blocks of ``itertools.tee``, retains all links behind it. Added up
link by link, what they hold would be more than there is.
"""

from __future__ import annotations

import functools
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from msgspec.structs import replace

from leakscope.heap import anatomy, contents
from leakscope.heap.graph import GARBAGE, NATIVE, Group, Nodes, WalkResult, lineage
from leakscope.heap.labels import Facet
from leakscope.heap.naming import NamedObject, Naming, is_transparent, steps_of
from leakscope.heap.ownership import Definitions, Ownership
from leakscope.heap.pausing import go_on_keeping_lock
from leakscope.heap.roots import Roots
from leakscope.model.census import OUTPUT_HISTORY, CensusRow, Content, Owner, RootKind

_LENGTH_FROM_INSIDE = frozenset({"queue", "dict", "list"})
_OTHER_NAMES = 4
_GRAPH_NODES = 2
"""A tensor that keeps fewer nodes than this merely remembers which operation made it."""
_GRAPH_NODE_BYTES = 680
"""What an autograd node takes besides what it saved, which nothing shows: edges, shapes of inputs,
saved variables. By the bytes that malloc has in use 580 to 820, in perceptrons, convolutions and
transformers."""

_CACHE_ENTRY = "torch._dynamo cache entry"

LIBRARY_SIZE = 1 << 20
"""A library's container is worth a row where this much is named through it: two that share their
contents retain little."""


@dataclass(slots=True)
class Draft:
    """A row in the making: the nodes that share a path."""

    path: str
    nodes: list[int]
    """Indices of the objects a person would name."""
    inner: list[int]
    """Indices of objects inside of those, such as the deque of a queue."""

    @property
    def first(self) -> int:
        """The node that speaks for all of them."""
        return (self.nodes or self.inner)[0]


class SealedName(NamedTuple):
    """What is remembered of the name of a sealed object."""

    path: str
    inside: bool
    may_stand: bool
    """Whether a person would name it, so that it may stand in a row."""


class SealedRows:
    """Names and rows of sealed objects, which stay the same from census to census."""

    def __init__(self) -> None:
        self.names: dict[int, SealedName] = {}
        self.rows: dict[str, tuple[tuple[Any, ...], CensusRow]] = {}
        self._folded = 0

    def forget_renamed(self, nodes: Nodes, folded: int) -> None:
        """Forget the names that may be others now; of what this walk doesn't answer, all.

        All go where :attr:`Ownership.folded` was another: a module may be called otherwise.
        """
        if folded != self._folded:
            self._folded = folded
            self.names.clear()
            self.rows.clear()
        if any(entry < -1 for entry in nodes.sealed):
            kept = {entry for entry in nodes.sealed if entry >= 0}
            self.names = {entry: name for entry, name in self.names.items() if entry in kept}

    def remember(self, entry: int, name: SealedName) -> None:
        """Remember the name of a sealed object, by its number in ``Nodes.sealed``."""
        if entry >= 0:
            self.names[entry] = name

    @property
    def own_bytes(self) -> int:
        """Roughly what is kept, in bytes."""
        return 300 * len(self.names) + 1500 * len(self.rows)


class RowMaker:
    """Names the nodes of one walk and merges them into rows."""

    def __init__(
        self,
        result: WalkResult,
        roots: Roots,
        ownership: Ownership,
        definitions: Definitions,
        sealed: SealedRows | None = None,
    ) -> None:
        self._nodes: Nodes = result.nodes
        self.roots = roots
        self._naming = Naming(ownership, definitions)
        self._definitions = definitions
        self._sealed = sealed or SealedRows()
        self._sealed.forget_renamed(self._nodes, ownership.folded)
        self.places = _Places(self._nodes, roots, self._naming)
        """By node; each is made when it is requested."""
        self.paths = _Paths(self._nodes, self.places, self._sealed)

    def is_row(self, node: int) -> bool:
        """Say whether a node may stand in a row: it weighs enough, and a person would name it."""
        is_selected = self._nodes.selected[node] or self._gathers_shared(node)
        return is_selected and self._name_of(node).may_stand

    def _name_of(self, node: int) -> SealedName:
        entry = self._nodes.sealed[node]
        known = self._sealed.names.get(entry)
        if known is not None:
            return known
        go_on_keeping_lock()
        place = self.places[node]
        may_stand = place.part.facet is not Facet.GLOBALS and not is_transparent(place.part.obj)
        name = SealedName(place.path, place.inside, may_stand)
        self._sealed.remember(entry, name)
        return name

    def drafts(self, among: Sequence[bool] | None = None) -> list[Draft]:
        """Return a draft for every path, in the order of the walk, of all selected or ``among``
        them.
        """
        drafts: dict[str, Draft] = {}
        for node, selected in enumerate(among or self._nodes.selected):
            may_be_row = selected or (among is None and self._gathers_shared(node))
            name = self._name_of(node) if may_be_row else None
            if name is not None and name.may_stand:
                draft = drafts.setdefault(name.path, Draft(name.path, [], []))
                (draft.inner if name.inside else draft.nodes).append(node)
        return list(drafts.values())

    def _gathers_shared(self, node: int) -> bool:
        """Say whether much is named through a library's container, though others hold it too."""
        reached = self._nodes.reached_bytes[node]
        if sum(reached.values()) < LIBRARY_SIZE or self.is_user(node):
            return False
        return contents.length_of(self._nodes.objects[node]) is not None

    def row(self, draft: Draft, role_of: Callable[[Draft], str]) -> CensusRow:
        """Return the row of the objects that share a path."""
        go_on_keeping_lock()
        key = self._state(draft)
        state, row = self._sealed.rows.get(draft.path, (None, None))
        if row is None or key is None or state != key:
            row = self._new_row(draft, role_of(draft))
            if key is not None:
                self._sealed.rows[draft.path] = (key, row)
        return row

    def _state(self, draft: Draft) -> tuple[Any, ...] | None:
        """Return what a row of sealed objects depends on; None for one of others."""
        nodes = self._nodes
        tops = (*draft.nodes, *draft.inner)
        if any(nodes.sealed[node] < 0 for node in tops):
            return None
        return tuple(
            (
                nodes.sealed[node],
                nodes.host_bytes[node],
                sum(nodes.reached_bytes[node].values()),
                contents.length_of(nodes.objects[node]),
                contents.hits_of(nodes.objects[node]),
            )
            for node in tops
        )

    def _new_row(self, draft: Draft, role: str) -> CensusRow:
        nodes, place = self._nodes, self.places[draft.first]
        compiled = self.roots.compiled.get(draft.path)
        members = (*draft.nodes, *draft.inner)
        counted = [n for n in members if not self._is_within(n, draft.path)]
        reaching = [n for n in members if not self._is_below(n, draft.path)]
        kind = self.kind(draft.first) if compiled is None else "compiled"
        graph_nodes = sum(nodes.graph_nodes[n] for n in counted)
        return CensusRow(
            path=draft.path,
            name=_name(place),
            root=place.root_kind,
            owner=self._owner(place),
            type=anatomy.qualified_name(type(place.part.obj)) if compiled is None else _CACHE_ENTRY,
            kind=kind,
            role=role,
            user=self.is_user(draft.first),
            host_bytes=sum(retained_on_host(nodes, n) for n in counted),
            device_bytes=added(nodes.device_bytes[n] for n in counted),
            shared_bytes=self._shared(reaching, counted),
            recent_bytes=self._recent(draft, reaching),
            count=1 if compiled else len(draft.nodes) or len(draft.inner),
            length=compiled.entries if compiled else self._length(draft, kind),
            capacity=compiled.bound if compiled else self._capacity(draft),
            hits=_sum_of_known(contents.hits_of(nodes.objects[n]) for n in members),
            graph_nodes=graph_nodes,
            unused_bytes=added(nodes.unused_bytes[n] for n in counted),
            holds=self._holds(draft),
            parent=self._parent(draft),
            also_named=self._also_named(draft, _name(place)),
            also_held_by=self._also_held_by(draft, _name(place)),
            cycle=self._cycle(draft) if place.root_kind is RootKind.GARBAGE else [],
        )

    def _cycle(self, draft: Draft) -> list[str]:
        """Return the circle of the first object of which one is known."""
        nodes, qualname = self._nodes, self._definitions.qualname
        circles = (nodes.circle[node] for node in (*draft.nodes, *draft.inner))
        found = (steps_of([nodes.objects[n] for n in c], qualname) for c in circles if c)
        return next(filter(None, found), [])

    def is_user(self, node: int) -> bool:
        """Say whether the name of a node begins in the user's own code."""
        return 0 <= self._nodes.root[node] < self.roots.user_count

    def reached(self, draft: Draft) -> int:
        """Return how many bytes are named through a draft at most, on all devices."""
        tops = (*draft.nodes, *draft.inner)
        return sum(sum(self._nodes.reached_bytes[node].values()) for node in tops)

    def _is_within(self, node: int, path: str) -> bool:
        """What another object of the same row retains is counted with that."""
        above = lineage(self._nodes.dominator, self._nodes.dominator[node])
        return any(self.paths[n] == path and self.is_row(n) for n in above)

    def _shared(self, reaching: list[int], counted: list[int]) -> dict[str, int]:
        """What is named through the row less what it retains alone."""
        nodes = self._nodes
        alone = added({"host": nodes.host_bytes[n], **nodes.device_bytes[n]} for n in counted)
        reached = added(nodes.reached_bytes[n] for n in reaching)
        shared = {device: size - alone.get(device, 0) for device, size in reached.items()}
        return {device: size for device, size in shared.items() if size > 0}

    def _recent(self, draft: Draft, reaching: list[int]) -> int | None:
        """What of a library's came since measuring began; None where nothing tells."""
        recent = [self._nodes.recent_bytes[node] for node in reaching]
        return None if self.is_user(draft.first) or min(recent) < 0 else sum(recent)

    def _is_below(self, node: int, path: str) -> bool:
        above = lineage(self._nodes.parent, self._nodes.parent[node])
        below = takewhile(lambda n: self.paths[n].startswith(path), above)
        return any(self.paths[n] == path and self.is_row(n) for n in below)

    def _also_named(self, draft: Draft, name: str) -> list[str]:
        """Return the other names of a container, those of variables first; of many, none."""
        if len(draft.nodes) + len(draft.inner) > 1:
            return []
        node = draft.first
        obj = self._nodes.objects[node]
        found = dict.fromkeys(self.roots.names_of(obj))
        for other in filter(self._lasts, self._nodes.others[node]):
            place = self._naming.below(self.places[other], obj)
            if not place.path.startswith(draft.path):
                found[place.name] = None
        return [other for other in found if other != name][:_OTHER_NAMES]

    def _also_held_by(self, draft: Draft, name: str) -> list[str]:
        """Return who holds more than one of the sampled items: what merely passes by does not."""
        samples = [s for n in (*draft.nodes, *draft.inner) for s in self._nodes.holders[n]]
        found: Counter[str] = Counter()
        for sample in samples:
            holders = (self.places[n] for n in filter(self._lasts, sample))
            others = (h for h in holders if not h.path.startswith(draft.path))
            found.update({h.name.partition("[*]")[0] for h in others} - {name})
        enough = max(2, (len(samples) + 1) // 2)
        return [other for other, count in found.items() if count >= enough and other]

    def _lasts(self, node: int) -> bool:
        """Say whether a name outlives what libraries do just now: a call's own are no holders."""
        return not self.roots.is_of_a_call(self._nodes.root[node])

    def kind(self, node: int) -> str:
        """Return the kind of a node's object, telling tensors that keep a graph from others."""
        kind = self.places[node].kind
        keeps = self._nodes.keeps_graph[node] and self._nodes.graph_nodes[node] >= _GRAPH_NODES
        return "graph" if kind == "tensor" and keeps else kind

    def _owner(self, place: NamedObject) -> Owner | None:
        wrapped = wrapped_function(place.part.obj)
        if wrapped is None:
            return place.owner
        code, module = wrapped.__code__, place.owner.module if place.owner else ""
        return self._definitions.function(code, "", module, wrapped.__qualname__)

    def _length(self, draft: Draft, kind: str) -> int | None:
        inside = draft.inner if kind in _LENGTH_FROM_INSIDE or not draft.nodes else []
        lengths = (
            _sum_of_known(contents.length_of(self._nodes.objects[n]) for n in nodes)
            for nodes in (draft.nodes, inside)
        )
        return next((length for length in lengths if length is not None), None)

    def _capacity(self, draft: Draft) -> int | None:
        found = [
            contents.capacity_of(self._nodes.objects[n], self.places[n].kind)
            for n in (*draft.nodes, *draft.inner)
        ]
        return max((capacity for capacity in found if capacity is not None), default=None)

    def groups(self, draft: Draft) -> list[Group]:
        """Return what the objects of a row hold; of a wrapper, what its inner container holds."""
        return held_by(self._nodes, draft.inner or draft.nodes)

    def _holds(self, draft: Draft) -> list[Content]:
        holds = contents.contents(self.groups(draft))
        if _name(self.places[draft.first]) != OUTPUT_HISTORY:
            return holds
        nodes, history = self._nodes, draft.first
        kept = [
            (retained_on_host(nodes, node) + sum(nodes.device_bytes[node].values()), thing)
            for node, thing in enumerate(nodes.objects)
            if nodes.parent[node] == history
        ]
        return with_cells(holds, nodes.objects[history], kept)

    def root_kind(self, root: int) -> RootKind:
        """Return the kind of a root by its number in the walk."""
        if root >= 0:
            return self.roots.kind(root)
        return _NAMELESS[root][0] if root in _NAMELESS else RootKind.LIBRARY

    def _parent(self, draft: Draft) -> str:
        """Return the row through which this one is named: among others all that retain it."""
        above = lineage(self._nodes.parent, self._nodes.parent[draft.first])
        found = (self.paths[n] for n in above if self.paths[n] != draft.path and self.is_row(n))
        return next(found, "")


class _Places:
    def __init__(self, nodes: Nodes, roots: Roots, naming: Naming) -> None:
        self._nodes = nodes
        self.roots = roots
        self._naming = naming
        self._known: list[NamedObject | None] = [None] * len(nodes.objects)

    def __getitem__(self, node: int) -> NamedObject:
        known = self._known[node]
        if known is not None:
            return known
        above = [node]
        while (parent := self._nodes.parent[above[-1]]) >= 0 and self._known[parent] is None:
            above.append(parent)
        place = self._known[parent] if parent >= 0 else None
        for below in reversed(above):
            place = self._known[below] = self._named(below, place)
        assert place is not None
        return place

    def _named(self, node: int, parent: NamedObject | None) -> NamedObject:
        obj, root = self._nodes.objects[node], self._nodes.root[node]
        if parent is not None:
            return self._naming.below(parent, obj)
        if root >= 0:
            return self._naming.at_root(self.roots.root(root, obj))
        kind, text = _NAMELESS.get(root, (RootKind.LIBRARY, "<unnamed>"))
        form = contents.form_of(obj).partition(" ")[0]
        name = f"{text}·{anatomy.qualified_name(type(obj))} {form}".rstrip()
        return self._naming.without_root(obj, kind, name)


_NAMELESS = {
    NATIVE: (RootKind.NATIVE, "<held by native code>"),
    GARBAGE: (RootKind.GARBAGE, "<garbage>"),
}


class _Paths:
    def __init__(self, nodes: Nodes, places: _Places, sealed: SealedRows) -> None:
        self._nodes = nodes
        self._places = places
        self._sealed = sealed
        self._known: dict[int, str] = {}

    def __getitem__(self, node: int) -> str:
        path = self._known.get(node)
        if path is None:
            known = self._sealed.names.get(self._nodes.sealed[node])
            path = self._known[node] = self._places[node].path if known is None else known.path
        return path


def retained_on_host(nodes: Nodes, node: int) -> int:
    """Return what a node retains in bytes of host memory, autograd nodes by estimate."""
    return nodes.host_bytes[node] + _GRAPH_NODE_BYTES * nodes.graph_nodes[node]


def wrapped_function(obj: Any) -> types.FunctionType | None:
    """Return the function whose results an ``lru_cache`` keeps, else None."""
    if type(obj) is not functools._lru_cache_wrapper:
        return None
    wrapped = (anatomy.instance_dict(obj) or {}).get("__wrapped__")
    return wrapped if type(wrapped) is types.FunctionType else None


def _name(place: NamedObject) -> str:
    wrapped = wrapped_function(place.part.obj)
    if wrapped is not None and place.root is not None and place.root.user:
        return wrapped.__qualname__.rpartition("<locals>.")[2]
    return place.name


def _sum_of_known(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def added(columns: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the sums of columns by device."""
    total: dict[str, int] = {}
    for column in columns:
        for device, size in column.items():
            total[device] = total.get(device, 0) + size
    return total


def held_by(nodes: Nodes, members: list[int]) -> list[Group]:
    """Return what the members hold, no byte twice: of a link what it holds, not the link itself."""
    inside = set(members)
    above = nodes.dominator
    tops = {member for member in members if inside.isdisjoint(lineage(above, above[member]))}
    # By number: a metaclass of the program's may have a __hash__ of its own.
    kinds = {id(type(nodes.objects[top])) for top in tops}
    opened: dict[int, list[Group]] = {}
    for member in sorted(members):
        holder = above[member]
        if member in tops:
            opened[member] = list(nodes.holds[member])
        elif holder in opened and id(type(nodes.objects[member])) in kinds:
            rest = _without(opened[holder], nodes, member)
            if rest is not None:
                opened[holder] = rest
                opened[member] = list(nodes.holds[member])
    return [group for member in members if member in opened for group in opened[member]]


def _without(groups: list[Group], nodes: Nodes, link: int) -> list[Group] | None:
    obj = nodes.objects[link]
    size = nodes.host_bytes[link] + sum(nodes.device_bytes[link].values())
    for place, group in enumerate(groups):
        if group.type is not type(obj) or group.bytes < size:
            continue
        unused = group.unused_bytes - sum(nodes.unused_bytes[link].values())
        left = replace(
            group,
            count=group.count - 1,
            bytes=group.bytes - size,
            samples=[sample for sample in group.samples if sample is not obj],
            unused_bytes=max(0, unused),
        )
        kept = [left] if left.count else []
        return [*groups[:place], *kept, *groups[place + 1 :]]
    return None


MOST = 3


def with_cells(
    holds: Sequence[Content], history: Any, kept: Sequence[tuple[int, object]]
) -> list[Content]:
    """Return what the history of displayed results holds, with the cells of the heaviest.

    ``holds`` is what it holds by type, ``kept`` bytes and object of the heavier things in it.
    """
    if type(history) is not dict:
        return list(holds)
    numbers = {id(value): key for key, value in list(history.items()) if type(key) is int}
    cells: dict[str, list[str]] = defaultdict(list)
    for _, thing in sorted(kept, key=lambda pair: -pair[0]):
        number = numbers.get(id(thing))
        if number is not None:
            cells[anatomy.qualified_name(type(thing))].append(f"Out[{number}]")
    return [
        replace(each, detail=", ".join(filter(None, [each.detail, *cells[each.type][:MOST]])))
        for each in holds
    ]
