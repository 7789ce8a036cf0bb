"""The rows of several censuses as one tree of names, with the bytes of each node at each census.

Of very many censuses a choice is kept, spread over the run; the tree is folded until it fits a
page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from leakscope.analysis.columns.series import HOST, own_bytes
from leakscope.analysis.growth import policy
from leakscope.analysis.run_context import RunContext
from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key
from leakscope.model.census import FILE, SHARED, Census, CensusRow, CensusScope, RootKind
from leakscope.model.report import Culprit
from leakscope.model.run import NodeKind, Retained, RetainedNode

MOST_DEVICES = 16
MOST_BYTES = 1 << 52
"""What a page's script can count to exactly; only a forged recording has more."""
Column = list[int | None]
_Parts = dict[str, dict[str, list[RetainedNode]]]

GROUPS = {
    RootKind.NATIVE: "held by native code",
    RootKind.GARBAGE: "garbage, not collected yet",
}
LIBRARIES = "libraries"
_STEP = ".·[("
"""What a step of a path begins with."""
MOST_CENSUSES = 300
_CULPRITS = 3
"""So many culprits are sure to be seen at their height."""
RAN_OUT = "memory ran out"
_OUTSIDE = {BoundaryKind.RUN_BEGIN, BoundaryKind.RUN_END}
MOST_NODES = 800
MOST_CELLS = 120_000
"""Nodes times censuses times devices."""
_LEAST_NODES = 100


@dataclass
class RetainedTree:
    """Nodes, parents first, and by device and census the bytes of each."""

    nodes: list[RetainedNode]
    bytes: list[dict[str, Column]]
    number: dict[tuple[str, ...], int] = field(default_factory=dict)


def grow(looks: Sequence[CensusLook]) -> RetainedTree:
    """Return the tree of all names in any of the censuses."""
    latest = {row.path: row for look in looks for row in look.census.rows}
    tree = RetainedTree([RetainedNode(kind=NodeKind.WHOLE)], [], {(): 0})
    for row in _parents_first(latest):
        _add_row(tree, row, latest)
    for look in looks:
        if look.census.scope is CensusScope.FULL and look.census.garbage_bytes:
            _add(tree, (NodeKind.GROUP.value, GROUPS[RootKind.GARBAGE]), 0)
    gathering = _gathering(tree, latest)
    for row in (row for look in looks for row in look.census.rows if row.path in gathering):
        above = tree.number[NodeKind.ROW.value, row.path]
        for content in row.holds:
            _add(tree, (NodeKind.CONTENT.value, row.path, content.type), above)
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
        above = above[: max(0, *(above.rfind(step) for step in _STEP))]
    return "" if above == row.path else above


def _add_row(tree: RetainedTree, row: CensusRow, latest: dict[str, CensusRow]) -> None:
    parent = tree.number.get((NodeKind.ROW.value, _parent(row, latest)))
    above, start = _owner(tree, row) if parent is None else (parent, tree.nodes[parent].path)
    node = RetainedNode(
        kind=NodeKind.ROW,
        parent=above,
        label=row.path.removeprefix(start).lstrip(".·") or row.path,
        name=row.name,
        path=row.path,
        type=row.type,
        keeps_graph=row.kind == "graph",
    )
    _add(tree, (NodeKind.ROW.value, row.path), above, node)


def _owner(tree: RetainedTree, row: CensusRow) -> tuple[int, str]:
    """Return the node in which a path begins, and the part of the path that says so."""
    place = 0
    if not row.user:
        place = _add(tree, (NodeKind.GROUP.value, GROUPS.get(row.root, LIBRARIES)), 0)
    begin, parted, _ = row.path.partition("·")
    if row.root in GROUPS or not parted:
        return place, f"{begin}·" if row.root in GROUPS else ""
    key = (NodeKind.OWNER.value, tree.nodes[place].label, begin)
    return _add(tree, key, place), begin


def _add(
    tree: RetainedTree, key: tuple[str, ...], parent: int, node: RetainedNode | None = None
) -> int:
    """Return the place of a node, which is made where there is none."""
    if key not in tree.number:
        tree.number[key] = len(tree.nodes)
        named = RetainedNode(kind=NodeKind(key[0]), parent=parent, label=key[-1])
        tree.nodes.append(node or named)
    return tree.number[key]


def _gathering(tree: RetainedTree, latest: dict[str, CensusRow]) -> set[str]:
    """Return the rows whose contents are shown by type: those below which no attribute is named."""
    named = {
        tree.nodes[node.parent].path
        for node in tree.nodes
        if node.kind is NodeKind.ROW and not node.label.startswith("[")
    }
    return latest.keys() - named


def _parts(tree: RetainedTree) -> _Parts:
    """Return the rows directly below, by path and type; contents of that type count them too."""
    found: _Parts = {}
    for node in tree.nodes:
        above = tree.nodes[node.parent] if node.kind is NodeKind.ROW else None
        if above is not None and above.kind is NodeKind.ROW:
            found.setdefault(above.path, {}).setdefault(node.type, []).append(node)
    return found


def _devices(looks: Sequence[CensusLook]) -> list[str]:
    found = {d for look in looks for d in look.census.payload_bytes}
    for look in looks:
        for row in look.census.rows:
            found |= row.device_bytes.keys() | row.shared_bytes.keys()
    return [HOST, *sorted(found - {HOST, SHARED, FILE})][:MOST_DEVICES]


def _column(tree: RetainedTree, look: CensusLook, device: str, parts: _Parts) -> Column:
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
    return max(own_bytes(row, device) + row.shared_bytes.get(device, 0), 0)


def _contents(
    row: CensusRow, device: str, parts: dict[str, list[RetainedNode]], sizes: dict[str, int]
) -> dict[tuple[str, ...], int]:
    """Return what an object holds by type, less what has a row of its own; nothing where that is
    more than it can be. What all lies under one row of items counts for that row: a census looks
    at some of many items only.

    How the contents of one type lie on several devices isn't recorded. They are shown where all
    that the object retains is on one device, or, of a single type, on the host and one device.
    """
    elsewhere = [d for d in (HOST, *row.device_bytes) if d != device and _size(row, d)]
    size = _size(row, device)
    if elsewhere and not (elsewhere == [HOST] and len(row.holds) == 1):
        return {}
    named = {node.path: sizes.get(node.path, 0) for nodes in parts.values() for node in nodes}
    left: dict[tuple[str, ...], int] = {}
    for content in row.holds:
        alike = parts.get(content.type, [])
        content_bytes = max(min(content.bytes, size), 0)
        if len(alike) == 1 and alike[0].label.startswith("["):
            named[alike[0].path] = max(content_bytes, named[alike[0].path])
        else:
            rest = content_bytes - sum(named[node.path] for node in alike)
            left[NodeKind.CONTENT.value, row.path, content.type] = max(rest, 0)
    if sum(left.values()) + sum(named.values()) > size:
        return {}
    return left | {
        (NodeKind.ROW.value, path): content_bytes for path, content_bytes in named.items()
    }


def _raise_parents(tree: RetainedTree, column: list[int]) -> None:
    """Raise each parent to at least the sum of its children: autograd nodes are estimates,
    and rows of one path may lie under several objects.
    """
    sums = [0] * len(column)
    for place in range(len(column) - 1, 0, -1):
        column[place] = max(column[place], sums[place])
        sums[tree.nodes[place].parent] += column[place]
    column[0] = max(column[0], sums[0])


def _sampled(tree: RetainedTree, column: Sequence[int], sizes: dict[str, int]) -> set[int]:
    """Return the rows of items that a census named only in part: their insides are of that part."""
    return {
        place
        for place, node in enumerate(tree.nodes)
        if node.kind is NodeKind.ROW
        and node.label.startswith("[")
        and sizes.get(node.path, 0) < (1 - policy.LITTLE_SHARE) * column[place]
    }


def _below(tree: RetainedTree, above: Collection[int]) -> set[int]:
    found: set[int] = set()
    for place, node in enumerate(tree.nodes):
        if node.parent in above or node.parent in found:
            found.add(place)
    return found


@dataclass(frozen=True)
class CensusLook:
    """A census and the boundary at which it was taken."""

    boundary: Boundary
    census: Census


def looks_of(case: RunContext) -> list[CensusLook]:
    """Return all censuses in the order of time; those before and after the work only where there
    are no others.
    """
    measured = case.track.measurements
    found = [CensusLook(m.boundary, m.census) for m in measured if m.census is not None]
    shortage = next((s for s in reversed(case.recording.shortages) if s.census is not None), None)
    if shortage is not None and shortage.census is not None:
        boundary = Boundary(
            index=shortage.boundary,
            kind=BoundaryKind.MARK,
            label=RAN_OUT,
            time_s=shortage.time_s,
            phase=shortage.phase,
            epoch=shortage.epoch,
            step=shortage.step,
            batch=shortage.batch,
        )
        found.append(CensusLook(boundary, shortage.census))
    inside = [look for look in found if look.boundary.kind not in _OUTSIDE]
    return sorted(inside or found, key=lambda look: look.boundary.time_s)


def choose_censuses(
    case: RunContext,
    looks: Sequence[CensusLook],
    culprits: Iterable[Culprit],
    most: int = MOST_CENSUSES,
) -> list[int]:
    """Return places of so many censuses to keep at most, in the order of time."""
    most = min(most, MOST_CENSUSES)
    wanted = dict.fromkeys(place for place in _wanted(case, looks, culprits) if place is not None)
    return _spread([*wanted][:most], len(looks), most)


def like_pair(case: RunContext, looks: Sequence[CensusLook]) -> tuple[int, int]:
    """Return places of the two censuses that show growth best.

    They are of one scope, at comparable boundaries, far apart; else the first and the last.
    """
    window = _window(case, looks)
    if window is not None and kind_of(looks[window[0]]) == kind_of(looks[window[1]]):
        return window
    alike: dict[object, list[int]] = {}
    of_scope: dict[object, list[int]] = {}
    for place, look in enumerate(looks):
        alike.setdefault(kind_of(look), []).append(place)
        of_scope.setdefault(look.census.scope, []).append(place)
    several = [[g for g in groups.values() if len(g) > 1] for groups in (alike, of_scope)]
    best = max(several[0] or several[1], key=lambda g: g[-1] - g[0], default=[0, len(looks) - 1])
    return best[0], best[-1]


def last_at_work(case: RunContext, looks: Sequence[CensusLook]) -> int:
    """Return the last census, or the one before the program was ending if more was held there:
    functions that have returned hold nothing any more.
    """
    last = len(looks) - 1
    if looks[last].boundary.label == RAN_OUT:
        return last
    work = case.track.index[case.track.last_work]
    at_work = [p for p, look in enumerate(looks) if look.boundary.index <= work]
    before = at_work[-1] if at_work else last
    return max(last, before, key=lambda place: _named_bytes(looks[place].census))


def kind_of(look: CensusLook) -> tuple[CensusScope, tuple[str, str, str]]:
    """Return under what a census may be compared with others."""
    return look.census.scope, comparable_key(look.boundary)


def seen_bytes(census: Census, device: str = "host") -> int:
    """Return all bytes that a census saw on a device."""
    payload = census.payload_bytes
    if device != "host":
        return payload.get(device, 0)
    return census.heap_bytes + payload.get("host", 0) + payload.get("shared", 0)


def _wanted(
    case: RunContext, looks: Sequence[CensusLook], culprits: Iterable[Culprit]
) -> list[int | None]:
    """Return what must not be missing, the most important first."""
    largest = max(range(len(looks)), key=lambda p: _named_bytes(looks[p].census))
    full = [p for p, look in enumerate(looks) if look.census.scope is CensusScope.FULL]
    return [
        last_at_work(case, looks),
        len(looks) - 1,
        0,
        *like_pair(case, looks),
        largest,
        _begin_of_phase(looks, largest),
        *full[-1:],
        *full[:1],
        *(_height(case, looks, culprit) for culprit in [*culprits][:_CULPRITS]),
    ]


def _named_bytes(census: Census) -> int:
    """Return what is held under the user's own names, which censuses of both scopes see alike."""
    return sum(
        row.host_bytes + sum(row.device_bytes.values()) + sum(row.shared_bytes.values())
        for row in census.rows
        if row.user and not row.parent
    )


def _begin_of_phase(looks: Sequence[CensusLook], place: int) -> int:
    at = looks[place].boundary
    return next(
        p
        for p, look in enumerate(looks)
        if (look.boundary.phase, look.boundary.occurrence) == (at.phase, at.occurrence)
    )


def _height(case: RunContext, looks: Sequence[CensusLook], culprit: Culprit) -> int | None:
    """Return the census at which a culprit held most, None where it is of another process."""
    number = case.table.number.get(culprit.path)
    if number is None:
        return None
    column, _ = case.table.highest(number, culprit.device)
    return _index_of_boundary(looks, case.track.boundaries[int(case.table.at[column])])


def _window(case: RunContext, looks: Sequence[CensusLook]) -> tuple[int, int] | None:
    if case.window is None:
        return None
    ends = (case.track.boundaries[place] for place in (case.window.first, case.window.last))
    first, last = (_index_of_boundary(looks, end) for end in ends)
    return None if first is None or last is None or first == last else (first, last)


def _index_of_boundary(looks: Sequence[CensusLook], boundary: Boundary) -> int | None:
    return next((p for p, look in enumerate(looks) if look.boundary is boundary), None)


def _spread(wanted: Sequence[int], count: int, most: int) -> list[int]:
    """Return the wanted places and others, each the farthest from all that were chosen."""
    chosen, places = [*wanted], np.arange(count)
    distance = np.min([abs(places - place) for place in chosen], axis=0)
    while len(chosen) < min(most, count):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, abs(places - chosen[-1]))
    return sorted(chosen)


def fold(
    tree: RetainedTree, wanted: Collection[str] = (), cutoff_bytes: int = 0, cells: int = MOST_CELLS
) -> RetainedTree:
    """Return the tree with its heaviest nodes and those of the wanted paths; below each parent the
    others are one node, in whose bytes nothing is lost.

    Contents that never reach the cutoff stay without a name, as they do in a census.
    """
    heights = _heights(tree)
    columns = sum(len(by_device) for by_device in tree.bytes)
    most = max(_LEAST_NODES, min(MOST_NODES, cells // max(1, columns)))
    shown = {
        place
        for place, node in enumerate(tree.nodes)
        if heights[place] >= (cutoff_bytes if node.kind is NodeKind.CONTENT else 1)
    }
    required = [p for p, node in enumerate(tree.nodes) if node.path and node.path in wanted]
    heaviest = sorted(shown, key=lambda place: (-heights[place], place))[:most]
    kept = _with_parents(tree, [0, *required, *heaviest])
    return _folded(tree, sorted(kept), shown)


def _heights(tree: RetainedTree) -> list[int]:
    """Return the most that each node held at any census on any device."""
    columns = (column for by_device in tree.bytes for column in by_device.values())
    sizes = zip([0] * len(tree.nodes), *columns, strict=True)
    return [max(size or 0 for size in of_node) for of_node in sizes]


def _with_parents(tree: RetainedTree, places: Sequence[int]) -> set[int]:
    kept: set[int] = set()
    for place in places:
        above = place
        while above >= 0 and above not in kept:
            kept.add(above)
            above = tree.nodes[above].parent
    return kept


def _folded(tree: RetainedTree, kept: Sequence[int], shown: Collection[int]) -> RetainedTree:
    new = {place: number for number, place in enumerate(kept)}
    smaller: dict[int, list[int]] = {}
    for place, node in enumerate(tree.nodes):
        if place in shown and place not in new and node.parent in new:
            smaller.setdefault(node.parent, []).append(place)
    nodes = [
        msgspec.structs.replace(tree.nodes[p], parent=new.get(tree.nodes[p].parent, -1))
        for p in kept
    ]
    nodes += [
        RetainedNode(kind=NodeKind.SMALLER, parent=new[parent], count=len(places))
        for parent, places in smaller.items()
    ]
    columns = [
        {
            device: [column[place] for place in kept]
            + [added(column[place] for place in places) for places in smaller.values()]
            for device, column in by_device.items()
        }
        for by_device in tree.bytes
    ]
    return RetainedTree(nodes, columns)


def added(sizes: Iterable[int | None]) -> int | None:
    """Return the sum of the sizes that are known, None where none is."""
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


@dataclass(frozen=True)
class Weights:
    """By node: its bytes or their change, and the width that it has in a picture.

    Widths of children never add up to more than their parent's. Bytes are None where they are
    unknown.
    """

    bytes: list[int | None]
    widths: list[int]


def retained_weights(retained: Retained, device: str, census: int) -> Weights:
    """Return what each node held at a census."""
    sizes = retained.censuses[census].bytes.get(device, [0] * len(retained.nodes))
    return Weights([*sizes], [size or 0 for size in sizes])


def grown_weights(retained: Retained, device: str, first: int, last: int) -> Weights:
    """Return the growth of each node; its width is all that changed in it, up or down.

    Where only one of both censuses looked at the whole heap, what both saw is compared: then the
    whole is the sum of its parts.
    """
    sides = (retained.censuses[first], retained.censuses[last])
    blank = [0] * len(retained.nodes)
    before, after = (side.bytes.get(device, blank) for side in sides)
    net = [None if b is None or a is None else a - b for b, a in zip(before, after, strict=True)]
    parts = [0] * len(net)
    widths = [0] * len(net)
    for place in range(len(net) - 1, -1, -1):
        change = net[place]
        if place == 0 and sides[0].scope is not sides[1].scope:
            change = net[0] = parts[0]
        if change is None:
            continue
        widths[place] += abs(change - parts[place])
        if place:
            above = retained.nodes[place].parent
            parts[above] += change
            widths[above] += widths[place]
    return Weights(net, widths)
