"""The rows of several censuses as one tree of names, with the bytes of each node at each census."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from leakscope.analysis.retained.choosing import Look, seen_bytes
from leakscope.model.census import FILE, SHARED, CensusRow, CensusScope, RootKind
from leakscope.model.retained import NodeKind, RetainedNode

HOST = "host"
MOST_DEVICES = 16
MOST_BYTES = 1 << 52
"""What a page's script can count to exactly; more is only told by a recording made to overflow."""
Column = list[int | None]
_Parts = dict[str, dict[str, list[RetainedNode]]]

GROUPS = {
    RootKind.NATIVE: "held by native code",
    RootKind.GARBAGE: "garbage, not collected yet",
}
LIBRARIES = "libraries"
_MOST_MISSED = 0.1
"""Of the bytes in a container's items: where a census missed more, it can't tell their insides."""
_STEP = ".·[("
"""What a step of a path begins with."""


@dataclass
class Tree:
    """Nodes, parents first, and by device and census the bytes of each."""

    nodes: list[RetainedNode]
    bytes: list[dict[str, Column]]
    number: dict[tuple[str, ...], int] = field(default_factory=dict)


def grow(looks: Sequence[Look]) -> Tree:
    """Return the tree of all names that any of the censuses tells of."""
    latest = {row.path: row for look in looks for row in look.census.rows}
    tree = Tree([RetainedNode(kind=NodeKind.WHOLE)], [], {(): 0})
    for row in _parents_first(latest):
        _add_row(tree, row, latest)
    for look in looks:
        if look.census.scope is CensusScope.FULL and look.census.garbage_bytes:
            _add(tree, (NodeKind.GROUP.value, GROUPS[RootKind.GARBAGE]), 0)
    gathering = _gathering(tree, latest)
    for look in looks:
        for row in look.census.rows:
            if row.path in gathering:
                _add_contents(tree, row)
    devices = _devices(looks)
    parts = _parts(tree)
    tree.bytes = [{d: _column(tree, look, d, parts) for d in devices} for look in looks]
    return tree


def _parents_first(latest: dict[str, CensusRow]) -> list[CensusRow]:
    ordered: dict[str, CensusRow] = {}
    for path in latest:
        way: dict[str, CensusRow] = {}
        above = path
        while above in latest and above not in ordered and above not in way:
            way[above] = latest[above]
            above = _parent(latest[above], latest)
        ordered.update(reversed(way.items()))
    return [*ordered.values()]


def _parent(row: CensusRow, latest: dict[str, CensusRow]) -> str:
    """Return the nearest row above; where the nearest of all is not among them, one above it."""
    above = row.parent
    while above and above not in latest:
        above = above[: max(above.rfind(step) for step in _STEP) if _has_step(above) else 0]
    return "" if above == row.path else above


def _has_step(path: str) -> bool:
    return any(step in path for step in _STEP)


def _add_row(tree: Tree, row: CensusRow, latest: dict[str, CensusRow]) -> None:
    above = tree.number.get((NodeKind.ROW.value, _parent(row, latest)))
    if above is None:
        above, start = _owner(tree, row)
    else:
        start = tree.nodes[above].path
    step = row.path.removeprefix(start).lstrip(".·") or row.path
    node = RetainedNode(
        kind=NodeKind.ROW,
        parent=above,
        label=step,
        name=row.name,
        path=row.path,
        type=row.type,
        keeps_graph=row.kind == "graph",
    )
    _add(tree, (NodeKind.ROW.value, row.path), above, node)


def _owner(tree: Tree, row: CensusRow) -> tuple[int, str]:
    """Return the node in which a path begins, and the part of the path that says so."""
    place = 0
    if not row.user:
        place = _add(tree, (NodeKind.GROUP.value, GROUPS.get(row.root, LIBRARIES)), 0)
    begin, parted, _ = row.path.partition("·")
    if row.root in GROUPS or not parted:
        return place, f"{begin}·" if row.root in GROUPS else ""
    key = (NodeKind.OWNER.value, tree.nodes[place].label, begin)
    return _add(tree, key, place), begin


def _add(tree: Tree, key: tuple[str, ...], parent: int, node: RetainedNode | None = None) -> int:
    """Return the place of a node, which is made where there is none."""
    if key not in tree.number:
        tree.number[key] = len(tree.nodes)
        named = RetainedNode(kind=NodeKind(key[0]), parent=parent, label=key[-1])
        tree.nodes.append(node or named)
    return tree.number[key]


def _gathering(tree: Tree, latest: dict[str, CensusRow]) -> set[str]:
    """Return the rows whose contents are told by type: those below which no attribute is named."""
    named = {
        tree.nodes[node.parent].path
        for node in tree.nodes
        if node.kind is NodeKind.ROW and not node.label.startswith("[")
    }
    return latest.keys() - named


def _add_contents(tree: Tree, row: CensusRow) -> None:
    above = tree.number[NodeKind.ROW.value, row.path]
    for content in row.holds:
        _add(tree, (NodeKind.CONTENT.value, row.path, content.type), above)


def _parts(tree: Tree) -> _Parts:
    """Return by path and type the rows directly below, which contents of that type count too."""
    found: _Parts = {}
    for node in tree.nodes:
        above = tree.nodes[node.parent] if node.kind is NodeKind.ROW else None
        if above is not None and above.kind is NodeKind.ROW:
            found.setdefault(above.path, {}).setdefault(node.type, []).append(node)
    return found


def _devices(looks: Sequence[Look]) -> list[str]:
    found = {d for look in looks for d in look.census.payload_bytes}
    for look in looks:
        for row in look.census.rows:
            found |= row.device_bytes.keys() | row.shared_bytes.keys()
    return [HOST, *sorted(found - {HOST, SHARED, FILE})][:MOST_DEVICES]


def _column(tree: Tree, look: Look, device: str, parts: _Parts) -> Column:
    """Return the bytes of each node on a device at one census."""
    census, column = look.census, [0] * len(tree.nodes)
    column[0] = seen_bytes(census, device)
    sizes = {row.path: _size(row, device) for row in census.rows}
    for path, size in sizes.items():
        column[tree.number[NodeKind.ROW.value, path]] = size
    for row in census.rows:
        for key, size in _contents(row, device, parts.get(row.path, {}), sizes).items():
            place = tree.number.get(key)
            if place is not None:
                column[place] = size
    garbage = tree.number.get((NodeKind.GROUP.value, GROUPS[RootKind.GARBAGE]))
    if garbage is not None and device == HOST:
        column[garbage] = census.garbage_bytes or 0
    _raise_parents(tree, column)
    hidden = _below(tree, _sampled(tree, column, sizes))
    if census.scope is not CensusScope.FULL:
        groups = {p for p, node in enumerate(tree.nodes) if node.kind is NodeKind.GROUP}
        hidden |= groups | _below(tree, groups)
    return [None if place in hidden else min(size, MOST_BYTES) for place, size in enumerate(column)]


def _size(row: CensusRow, device: str) -> int:
    own = row.host_bytes if device == HOST else row.device_bytes.get(device, 0)
    return max(own + row.shared_bytes.get(device, 0), 0)


def _contents(
    row: CensusRow, device: str, parts: dict[str, list[RetainedNode]], sizes: dict[str, int]
) -> dict[tuple[str, ...], int]:
    """Return what an object holds by type, less what has a row of its own; nothing where that is
    more than it can be. What all lies under one row of items counts for that row: a census looks
    at some of many items only.

    How the contents of one type lie on several devices isn't recorded. They are told where all
    that the object retains is on one device, or, of a single type, on the only device beside the
    host.
    """
    elsewhere = [d for d in (HOST, *row.device_bytes) if d != device and _size(row, d)]
    size = _size(row, device)
    if elsewhere and not (elsewhere == [HOST] and len(row.holds) == 1):
        return {}
    named = {node.path: sizes.get(node.path, 0) for nodes in parts.values() for node in nodes}
    left: dict[tuple[str, ...], int] = {}
    for content in row.holds:
        alike = parts.get(content.type, [])
        held = max(min(content.bytes, size), 0)
        if len(alike) == 1 and alike[0].label.startswith("["):
            named[alike[0].path] = max(held, named[alike[0].path])
        else:
            rest = held - sum(named[node.path] for node in alike)
            left[NodeKind.CONTENT.value, row.path, content.type] = max(rest, 0)
    if sum(left.values()) + sum(named.values()) > size:
        return {}
    return left | {(NodeKind.ROW.value, path): held for path, held in named.items()}


def _raise_parents(tree: Tree, column: list[int]) -> None:
    """Let no parent hold less than its children together: autograd nodes are counted by estimate,
    and rows of one path may lie under several objects.
    """
    sums = [0] * len(column)
    for place in range(len(column) - 1, 0, -1):
        column[place] = max(column[place], sums[place])
        sums[tree.nodes[place].parent] += column[place]
    column[0] = max(column[0], sums[0])


def _sampled(tree: Tree, column: Sequence[int], sizes: dict[str, int]) -> set[int]:
    """Return the rows of items of which a census named only a part: what it says of their insides
    is of that part.
    """
    return {
        place
        for place, node in enumerate(tree.nodes)
        if node.kind is NodeKind.ROW
        and node.label.startswith("[")
        and sizes.get(node.path, 0) < (1 - _MOST_MISSED) * column[place]
    }


def _below(tree: Tree, above: Collection[int]) -> set[int]:
    found: set[int] = set()
    for place, node in enumerate(tree.nodes):
        if node.parent in above or node.parent in found:
            found.add(place)
    return found
