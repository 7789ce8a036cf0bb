"""From the walked graph to the answer: dominators, retained sizes, objects worth a row, columns of
tensors.

Both engines select by the same rules; this module is the reference's form of them.

Semi-NCA (Georgiadis, *Linear-Time Algorithms for Dominators and Related Problems*, 2005, §2.3):
semidominators as Lengauer and Tarjan find them, then each node's nearest common ancestor of its
parent and semidominator by climbing the tree that is already built. The native engine does the
same on arrays of C integers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from leakscope.heap.adapters.buffers import FILE, HOST, Memory
from leakscope.heap.reference.edges import TypeFacts

_MOST_DEPTH = 511
"""Depths are counted up to here; from there on the order of the walk tells parents first."""

_FIRST_SIBLINGS = 64
"""Of objects below one parent so many come before lighter objects elsewhere."""
_FOREIGN_PART = 4
"""What the user doesn't hold gets this part of the places at least."""


class WalkPhase(IntEnum):
    """From what an object was reached, the first that did."""

    USER = 0
    LIBRARY = 1
    OTHER = 2
    HIDDEN = 3
    NATIVE = 4
    GARBAGE = 5
    BARRIER = -1

    @property
    def root(self) -> int:
        """What stands for the root of this phase's nodes, where it has no numbered ones."""
        return {WalkPhase.NATIVE: -1, WalkPhase.GARBAGE: -2}.get(self, -3)


class Graph:
    """The walked nodes as columns."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.parent: list[int] = []
        self.root: list[int] = []
        self.depth: list[int] = []
        self.phase: list[WalkPhase] = []
        self.facts: list[TypeFacts | None] = []
        self.shallow: list[int] = []
        self.data: list[int] = []
        self.backing: list[str] = []
        self.entered: list[bool] = []
        self.by_graph: list[bool] = []
        self.mark: list[int] = []
        self.keeps_graph: list[bool] = []
        self.is_gradient: list[bool] = []
        self.is_frozen: list[bool] = []
        self.successors: list[list[int]] = []
        self.seeds: list[int] = []
        self.order: list[int] = []
        self.graph_count = 0
        self.graph_truncated = False
        self.graph_is_deep = False

    def add(self, value: object, parent: int, root: int, phase: WalkPhase) -> int:
        """Append a node and return its number."""
        self.objects.append(value)
        self.parent.append(parent)
        self.root.append(root)
        self.depth.append(0)
        self.phase.append(phase)
        self.facts.append(None)
        self.shallow.append(0)
        self.data.append(value.nbytes if type(value) is Memory else 0)
        self.backing.append(value.backing if type(value) is Memory else HOST)
        self.entered.append(False)
        self.by_graph.append(False)
        self.mark.append(-1)
        self.keeps_graph.append(False)
        self.is_gradient.append(False)
        self.is_frozen.append(False)
        self.successors.append([])
        return len(self.objects) - 1

    def take(self, node: int, phase: WalkPhase, root: int, parent: int = -1) -> None:
        """Make a waiting node part of a phase, as a seed where it has no parent."""
        self.phase[node], self.root[node], self.parent[node] = phase, root, parent
        if parent < 0:
            self.seeds.append(node)

    def enter(self, node: int) -> None:
        """Inherit from the parent, which was entered before."""
        parent, facts = self.parent[node], self.facts[node]
        self.entered[node] = True
        self.order.append(node)
        if parent >= 0:
            above = self.facts[parent]
            self.depth[node] = self.depth[parent] + 1
            self.mark[node] = self.mark[parent]
            self.by_graph[node] = self.by_graph[parent] or (
                above is not None and above.node is not None
            )
        if facts is not None and facts.mark >= 0:
            self.mark[node] = facts.mark

    def device(self, node: int) -> str:
        """Return where the data of a node lives."""
        value = self.objects[node]
        return value.device if type(value) is Memory else HOST


class RetainedSizes:
    """Dominators and retained sums over one virtual root (the last number)."""

    def __init__(self, graph: Graph) -> None:
        virtual = len(graph.objects)
        successors = [*graph.successors, graph.seeds]
        self.dominator, order = immediate_dominators(successors, virtual)
        self.devices = ["host"]
        own: dict[str, list[int]] = {"host": [*graph.shallow, 0]}
        for node, data in enumerate(graph.data):
            device = graph.device(node)
            if device not in own:
                own[device] = [0] * (virtual + 1)
                self.devices.append(device)
            own[device][node] += data
        nodes = [int(f is not None and f.node is not None) for f in graph.facts] + [0]
        self.bytes = {d: retained_sums(self.dominator, order, v) for d, v in own.items()}
        self.graph_nodes = retained_sums(self.dominator, order, nodes)
        self.reached = {d: retained_sums(graph.parent, graph.order, v) for d, v in own.items()}
        self.order = order

    def total(self, node: int) -> int:
        """Return the retained bytes of a node on all devices."""
        return sum(column[node] for column in self.bytes.values())

    def worth(self, graph: Graph, node: int) -> int:
        """Return by what a node is selected: under user roots also by what is named through it."""
        if graph.phase[node] != WalkPhase.USER:
            return self.total(node)
        return sum(column[node] for column in self.reached.values())


@dataclass(frozen=True)
class Relations:
    """What the fallback doesn't look for, and the oracle of the tests does."""

    holders: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """Who else holds a container or an item of it, by both; a container by itself twice."""
    circles: dict[int, list[int]] = field(default_factory=dict)
    """The circle that keeps a node of garbage from being freed."""
    unread: dict[str, list[int]] = field(default_factory=dict)
    """By device and node, what of the retained bytes can't be read."""
    outline: Any = None

    def unused(self, node: int) -> int:
        """Return how much of what a node retains can't be read."""
        return sum(column[node] for column in self.unread.values())


Relate = Callable[[Any, RetainedSizes, set[int]], Relations]
"""Relates the heaviest nodes of a walk to others, given its walker and what nodes retain."""


def answer(walker: Any, relate: Relate | None) -> dict[str, Any]:
    """Return the columns of a ``WalkResult`` without times; ``relate`` finds what the fallback
    doesn't.
    """
    graph, request, pinned = walker.graph, walker.request, walker.pinned()
    retained = RetainedSizes(graph)
    heaviest = _chosen(graph, retained, request)
    chosen = heaviest | _lineage(graph, pinned)
    related = Relations() if relate is None else relate(walker, retained, heaviest)
    holders, circles = related.holders, related.circles
    chosen_nodes = chosen.union(*pinned.values(), *holders.values(), *circles.values())
    named = _in_order(graph, _lineage(graph, chosen_nodes))
    position = {node: i for i, node in enumerate(named)}
    visible = [n for n in graph.order if graph.phase[n] != WalkPhase.HIDDEN]
    return {
        "nodes": _node_columns(graph, retained, related, request, named, chosen)
        | {
            "referrers": [[position[r] for r in pinned.get(n, [])] for n in named],
            "others": [[position[o] for o in holders.get((n, n), [])] for n in named],
            "holders": [
                [
                    [position[o] for o in others]
                    for (container, item), others in holders.items()
                    if container == n != item
                ]
                for n in named
            ],
            "circle": [[position[m] for m in circles.get(n, [])] for n in named],
        },
        "tensors": tensor_columns(graph, retained.devices, position, chosen),
        "devices": retained.devices,
        "objects": sum(graph.facts[n] is not None for n in visible),
        "edges": sum(len(graph.successors[n]) for n in visible),
        "heap_bytes": sum(graph.shallow[n] for n in visible),
        "payload_bytes": _payload(graph, visible),
        "graph_bytes": _by_device(graph, [n for n in visible if graph.by_graph[n]]),
        "graph_nodes": graph.graph_count,
        "graph_truncated": graph.graph_truncated,
        "graph_is_deep": graph.graph_is_deep,
        "garbage_bytes": _phase_bytes(graph, WalkPhase.GARBAGE) if request.full else None,
        "native_bytes": _phase_bytes(graph, WalkPhase.NATIVE) if request.full else None,
        "hidden_bytes": _phase_bytes(graph, WalkPhase.HIDDEN) if request.full else 0,
        "types": _totals(graph, visible) if request.count_types else [],
        "graph": related.outline,
    }


def _chosen(graph: Graph, retained: RetainedSizes, request: Any) -> set[int]:
    """Return the heaviest objects that a person could name."""
    heavy = sorted(
        (graph.phase[n] != WalkPhase.USER, -retained.worth(graph, n), graph.depth[n], n)
        for n in graph.order
        if _nameable(graph, n, request) and retained.worth(graph, n) >= request.cutoff_bytes
    )
    most = request.max_selected
    users = _most_of(graph, [n for is_foreign, *_, n in heavy if not is_foreign], most)
    left = max(most - len(users), most // _FOREIGN_PART)
    return {*users, *_most_of(graph, [n for is_foreign, *_, n in heavy if is_foreign], left)}


def _most_of(graph: Graph, heavy: list[int], most: int) -> list[int]:
    """Return so many of them, few below one parent before lighter ones elsewhere."""
    if len(heavy) <= most:
        return heavy
    siblings: Counter[int] = Counter()
    first: list[int] = []
    rest: list[int] = []
    for node in heavy:
        parent = graph.parent[node]
        if len(first) < most and (parent < 0 or siblings[parent] < _FIRST_SIBLINGS):
            first.append(node)
            siblings[parent] += parent >= 0
        else:
            rest.append(node)
            siblings[node] = _FIRST_SIBLINGS  # nor does what lies below it
    return [*first, *rest[: most - len(first)]]


def _nameable(graph: Graph, node: int, request: Any) -> bool:
    facts = graph.facts[node]
    return (
        facts is not None
        and facts.node is None
        and not graph.by_graph[node]
        and graph.phase[node] != WalkPhase.HIDDEN
        and graph.depth[node] <= request.max_depth
    )


def _lineage(graph: Graph, nodes: Iterable[int]) -> set[int]:
    found: set[int] = set()
    for node in nodes:
        above = node
        while above >= 0 and above not in found:
            found.add(above)
            above = graph.parent[above]
    return found


def _in_order(graph: Graph, named: set[int]) -> list[int]:
    is_deep = any(graph.depth[node] >= _MOST_DEPTH for node in named)
    entered = {node: at for at, node in enumerate(graph.order)} if is_deep else {}

    def order(node: int) -> tuple[int, int]:
        depth = graph.depth[node]
        return (depth, node) if depth < _MOST_DEPTH else (_MOST_DEPTH, entered[node])

    return sorted(named, key=order)


def _totals(graph: Graph, visible: list[int]) -> list[tuple[type, int, int, dict[str, int]]]:
    """Return type, count, bytes and payload; compared by identity, no metaclass is called."""
    totals: dict[int, tuple[type, int, int, dict[str, int]]] = {}
    for node in visible:
        is_memory = type(graph.objects[node]) is Memory
        kind = type(graph.objects[graph.parent[node] if is_memory else node])
        _, count, size, payload = totals.get(id(kind), (kind, 0, 0, {"host": 0}))
        if is_memory:
            device = graph.device(node)
            payload[device] = payload.get(device, 0) + graph.data[node]
        elif graph.facts[node] is not None:
            count, size = count + 1, size + graph.shallow[node] + graph.data[node]
        totals[id(kind)] = (kind, count, size, payload)
    return list(totals.values())


def _node_columns(
    graph: Graph,
    retained: RetainedSizes,
    related: Relations,
    request: Any,
    named: list[int],
    chosen: set[int],
) -> dict[str, list[Any]]:
    position = {node: i for i, node in enumerate(named)}
    others = [d for d in retained.devices if d != "host"]
    children = _children(retained, chosen)
    return {
        "objects": [graph.objects[n] for n in named],
        "parent": [position.get(graph.parent[n], -1) for n in named],
        "root": [graph.root[n] for n in named],
        "dominator": [position.get(_above(retained, n, chosen), -1) for n in named],
        "selected": [n in chosen for n in named],
        "shallow_bytes": [graph.shallow[n] + graph.data[n] for n in named],
        "host_bytes": [retained.bytes["host"][n] for n in named],
        "device_bytes": [
            {d: retained.bytes[d][n] for d in others if retained.bytes[d][n]} for n in named
        ],
        "reached_bytes": [
            {d: v[n] for d, v in retained.reached.items() if v[n] or d == "host"} for n in named
        ],
        "unused_bytes": [{d: v[n] for d, v in related.unread.items() if v[n]} for n in named],
        "graph_nodes": [retained.graph_nodes[n] for n in named],
        "keeps_graph": [graph.keeps_graph[n] for n in named],
        "holds": [_groups(graph, retained, related, request, children.get(n, [])) for n in named],
        "number": named,
        "sealed": [-1] * len(named),
        "recent_bytes": [-1] * len(named),
    }


def _above(retained: RetainedSizes, node: int, chosen: set[int]) -> int:
    above = retained.dominator[node]
    while above >= 0 and above not in chosen:
        above = retained.dominator[above]
    return above


def _children(retained: RetainedSizes, chosen: set[int]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = defaultdict(list)
    for node, above in enumerate(retained.dominator):
        if above in chosen:
            children[above].append(node)
    return children


def _groups(
    graph: Graph, retained: RetainedSizes, related: Relations, request: Any, children: list[int]
) -> list[Any]:
    by_type: dict[int, list[int]] = defaultdict(list)
    for node in children:
        facts = graph.facts[node]
        if facts is not None and facts.node is None:
            by_type[id(type(graph.objects[node]))].append(node)
    groups = [
        (
            type(graph.objects[nodes[0]]),
            len(nodes),
            sum(retained.total(n) for n in nodes),
            [graph.objects[n] for n in nodes[: request.max_samples]],
            sum(related.unused(n) for n in nodes),
        )
        for nodes in by_type.values()
    ]
    name_of = type.__dict__["__name__"].__get__
    groups.sort(key=lambda group: (-group[2], -group[1], name_of(group[0])))
    return groups[: request.max_groups]


def _payload(graph: Graph, nodes: list[int]) -> dict[str, int]:
    """Return the payload by device; of the host's, what is shared and what maps files apart."""
    total: dict[str, int] = {HOST: 0}
    for node in nodes:
        backing = graph.backing[node]
        place = graph.device(node) if backing == HOST else backing
        nbytes = graph.objects[node].nbytes if backing == FILE else graph.data[node]
        if nbytes:
            total[place] = total.get(place, 0) + nbytes
    return total


def _by_device(graph: Graph, nodes: list[int]) -> dict[str, int]:
    total: dict[str, int] = {HOST: 0}
    for node in nodes:
        device = graph.device(node)
        total[device] = total.get(device, 0) + graph.data[node]
    return total


def _phase_bytes(graph: Graph, phase: WalkPhase) -> int:
    return sum(
        graph.shallow[n] + graph.data[n] * (graph.device(n) == "host")
        for n in graph.order
        if graph.phase[n] == phase
    )


def immediate_dominators(
    successors: Sequence[Sequence[int]], root: int
) -> tuple[list[int], list[int]]:
    """Return each node's dominator, or -1, and the nodes that were reached, in preorder."""
    order, parent = _preorder(successors, root)
    number = {node: i for i, node in enumerate(order)}
    predecessors: list[list[int]] = [[] for _ in order]
    for node in order:
        for target in successors[node]:
            predecessors[number[target]].append(number[node])
    ancestors = _semi_nca(parent, predecessors)
    result = [-1] * len(successors)
    for i in range(1, len(order)):
        result[order[i]] = order[ancestors[i]]
    return result, order


def retained_sums(above: Sequence[int], order: Sequence[int], own: Sequence[int]) -> list[int]:
    """Return for each node the sum of ``own`` over all below it, itself included.

    ``above`` has each node's dominator, or its parent, and ``order`` must name those before what
    is below them, as a preorder does.
    """
    total = list(own)
    for node in reversed(order):
        if above[node] >= 0:
            total[above[node]] += total[node]
    return total


def _preorder(successors: Sequence[Sequence[int]], root: int) -> tuple[list[int], list[int]]:
    order, parent = [root], [0]
    seen = {root}
    stack = [(0, iter(successors[root]))]
    while stack:
        position, targets = stack[-1]
        for target in targets:
            if target not in seen:
                seen.add(target)
                stack.append((len(order), iter(successors[target])))
                order.append(target)
                parent.append(position)
                break
        else:
            stack.pop()
    return order, parent


def _semi_nca(parent: list[int], predecessors: list[list[int]]) -> list[int]:
    """Return immediate dominators in preorder numbers."""
    count = len(parent)
    dominator = list(parent)
    ancestor = list(parent)
    semi = list(range(count))
    label = list(range(count))
    for w in range(count - 1, 0, -1):
        best = w
        for v in predecessors[w]:
            if v > w:
                _compress(v, w, ancestor, label)
            if label[v] < best:
                best = label[v]
        semi[w] = label[w] = best
    for w in range(1, count):
        above = dominator[w]
        while above > semi[w]:
            above = dominator[above]
        dominator[w] = above
    return dominator


def _compress(v: int, last: int, ancestor: list[int], label: list[int]) -> None:
    """Let ``label[v]`` be the least on the way up through nodes numbered above ``last``."""
    path = []
    while ancestor[v] > last:
        path.append(v)
        v = ancestor[v]
    for u in reversed(path):
        above = ancestor[u]
        label[u] = min(label[u], label[above])
        ancestor[u] = ancestor[above]


def tensor_columns(
    graph: Graph, devices: list[str], position: dict[int, int], chosen: set[int]
) -> dict[str, list[int]]:
    """Return the columns of ``Tensors``: every tensor that was reached, with its storage.

    ``position`` is the place of each named node in the answer; the host is the first device.
    """
    names = ("storage", "nbytes", "device", "holder", "root", "mark", "flags", "address")
    tensors: list[tuple[int, ...]] = []
    holder: dict[int, int] = {-1: -1}
    for node in graph.order:
        holder[node] = position[node] if node in chosen else holder[graph.parent[node]]
        facts = graph.facts[node]
        if facts is None or not facts.tensor or graph.phase[node] is WalkPhase.HIDDEN:
            continue
        flags = facts.parameter | graph.is_gradient[node] << 1
        flags |= graph.keeps_graph[node] << 2 | graph.by_graph[node] << 3
        flags |= graph.is_frozen[node] << 4
        # Its storage, those of its parts, or none; each may be a part of other memory.
        storages = [s for s in graph.successors[node] if type(graph.objects[s]) is Memory]
        for own in storages or [-1]:
            storage = (graph.successors[own] or [own])[0] if own >= 0 else -1
            nbytes, device, address = 0, HOST, 0
            if storage >= 0:
                nbytes, device = graph.shallow[storage] + graph.data[storage], graph.device(storage)
                address = graph.objects[own].address
            of_tensor = (holder[node], graph.root[node], graph.mark[node], flags)
            tensors.append((storage, nbytes, devices.index(device), *of_tensor, address))
    return {name: [tensor[at] for tensor in tensors] for at, name in enumerate(names)}
