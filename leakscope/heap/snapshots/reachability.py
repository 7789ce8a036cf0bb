"""Where one object lies in the heap at this moment: its path, its holders, what keeps it alive."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CellType
from typing import Any

from leakscope.heap import anatomy, labels
from leakscope.heap.graph import Nodes, WalkResult, lineage, walk
from leakscope.heap.labels import ChainPart, Facet
from leakscope.heap.naming import is_transparent
from leakscope.heap.ownership import Definitions, Ownership
from leakscope.heap.roots import Roots, find_roots, walk_request
from leakscope.heap.rows import RowMaker, retained_on_host
from leakscope.heap.snapshots.answers import Columns, table_of, type_cell
from leakscope.model.census import RootKind
from leakscope.model.layout import AnswerCell, AnswerPage, Column, Printed, Table, size

_LONGEST_KEY = 40
_PRINTED_IN_FULL = (str, int, float, bool, bytes, type(None))
_LINKS_AT_ENDS = 8
"""Links shown at either end of a long chain."""


@dataclass(frozen=True)
class Link:
    """An object on the way from a name to the object in question."""

    path: str
    """With indices and keys as they are: ``main()·trainer.history[17]``."""
    type: str
    host_bytes: int
    """Retained bytes of host memory: what would be freed if this object went."""
    device_bytes: dict[str, int]


@dataclass(frozen=True)
class Reachability:
    """Where an object stands: numbers and names, no object."""

    type: str
    root: RootKind | None
    """From what kind of name it is reached; None where nothing reaches it."""
    links: tuple[Link, ...]
    """From the name down to the object itself."""
    keepers: tuple[Link, ...]
    """What alone keeps it alive, the nearest first; the object itself is not among them."""
    holders: tuple[str, ...]
    """Everything seen to refer to it, with the way it does; the one that names it first."""


@dataclass(frozen=True, repr=False)
class PathTo(Printed):
    """The way from a name to an object, and who else holds it."""

    standing: Reachability

    @property
    def found(self) -> bool:
        """Whether a name leads to the object."""
        return self.standing.root not in _NAMELESS

    @property
    def path(self) -> str:
        """The way with indices and keys as they are; empty where no name leads to it."""
        return self.standing.links[-1].path if self.found else ""

    @property
    def also_held_by(self) -> tuple[str, ...]:
        """Other references to the object, eight objects at most; its path is not among them."""
        return tuple(holder for holder in self.standing.holders if holder != self.path)

    def page(self) -> AnswerPage:
        """Return the way as a table, and the other holders."""
        if not self.found:
            return _lost(self.standing)
        links = self.standing.links
        return AnswerPage(
            f"{self.path}",
            tables=[_links_table(links)] if len(links) > 1 else [],
            notes=_describe_holders("Also held by", self.also_held_by)
            or ["Nothing else refers to it."],
        )


@dataclass(frozen=True, repr=False)
class Dominators(Printed, Sequence[Link]):
    """What alone keeps an object alive, the nearest first; empty where no single object does."""

    standing: Reachability

    def __getitem__(self, index: Any) -> Any:
        return self.standing.keepers[index]

    def __len__(self) -> int:
        return len(self.standing.keepers)

    def page(self) -> AnswerPage:
        """Return the chain as a table."""
        standing = self.standing
        if standing.root in _NAMELESS:
            return _lost(standing)
        path = standing.links[-1].path
        if standing.keepers:
            notes = [f"Were {standing.keepers[0].path} gone, {path} would be freed."]
            return AnswerPage(
                f"What alone keeps {path} alive", [], [_links_table(standing.keepers)], notes
            )
        if len(standing.holders) > 1:
            return AnswerPage(
                f"No single object keeps {path} alive",
                _describe_holders("It is held by", standing.holders),
            )
        return AnswerPage(f"Only the name {path} keeps it alive")


def reachability_of(
    obj: object,
    *,
    project_root: str,
    engine: str | None = None,
    ignoring: Iterable[str] = (),
    human: bool = True,
) -> Reachability:
    """Return where an object stands now.

    Names of the object in ``ignoring`` don't count; LookupError where one is none. With ``human``
    names that live long go before the variables of running functions, which then keep nothing alive
    that has another name.
    """
    ownership = Ownership(project_root)
    definitions = Definitions(ownership)
    roots = find_roots(ownership, definitions, full=True)
    _ignore(roots, obj, ignoring)
    namespaces = [names for _, names in ownership.user_modules()]
    request = replace(
        walk_request(roots, full=True, own=[namespaces]),
        library_from=None,
        stages=[*roots.stages, roots.user_count] if human else [len(roots.named)],
        barriers=[*namespaces],
        cutoff_bytes=1 << 62,
        pinned=[obj],
    )
    result = walk(request, engine=engine)
    names = {id(namespace) for namespace in namespaces}
    return _ReachabilityReader(
        result, roots, RowMaker(result, roots, ownership, definitions), names
    ).read(obj)


class _ReachabilityReader:
    def __init__(
        self, result: WalkResult, roots: Roots, maker: RowMaker, namespaces: set[int]
    ) -> None:
        self._nodes: Nodes = result.nodes
        self._roots = roots
        self._places = maker.places
        self._namespaces = namespaces
        self._of_modules = {id(obj) for obj, _ in roots.library_objects}
        """A module keeps its names alive, whoever else refers to them."""
        self._root_kind = maker.root_kind

    def read(self, obj: object) -> Reachability:
        at = next((i for i, o in enumerate(self._nodes.objects) if o is obj), -1)
        kind = anatomy.qualified_name(type(obj))
        if at < 0:
            return Reachability(kind, None, (), (), ())
        paths = self._paths(at)
        return Reachability(
            type=kind,
            root=self._root_kind(self._nodes.root[at]),
            links=tuple(self._link(n, paths[n]) for n in paths if n == at or self._is_printed(n)),
            keepers=tuple(self._link(n, paths[n]) for n in self._keepers(at) if n in paths),
            holders=self._holders(at, obj, paths[at]),
        )

    def _keepers(self, at: int) -> Iterator[int]:
        for above in lineage(self._nodes.dominator, self._nodes.dominator[at]):
            if self._is_printed(above):
                yield above
            if id(self._nodes.objects[above]) in self._of_modules:
                return

    def _is_printed(self, node: int) -> bool:
        """What is merely inside of another, such as the dict of its attributes, has no name."""
        return not self._places[node].inside

    def _link(self, node: int, path: str) -> Link:
        nodes = self._nodes
        kind = anatomy.qualified_name(type(nodes.objects[node]))
        return Link(path, kind, retained_on_host(nodes, node), nodes.device_bytes[node])

    def _paths(self, node: int) -> dict[int, str]:
        """Return the exact paths of a node and of what names it, from the root on.

        Of a long chain only both ends are shown: what lies between has no path here.
        """
        chain = [*lineage(self._nodes.parent, node)][::-1]
        skipped = range(_LINKS_AT_ENDS, len(chain) - _LINKS_AT_ENDS)
        first = self._places[chain[0]]
        path = first.root.path if first.root else first.anchor.name
        paths = {chain[0]: path}
        for i, (above, below) in enumerate(itertools.pairwise(chain), 1):
            if i in skipped:
                path += f"…{len(skipped):,} steps…" if i == skipped.start else ""
                continue
            path += exact_step(self._places[above].part, self._nodes.objects[below])
            paths[below] = path
        return paths

    def _holders(self, at: int, obj: object, path: str) -> tuple[str, ...]:
        found = dict.fromkeys([path] if self._nodes.root[at] >= 0 else [])
        named = [root for root in self._roots.named if root.obj is obj]
        found |= dict.fromkeys(root.path for root in named)
        for referrer in self._nodes.referrers[at]:
            holder = self._nodes.objects[referrer]
            of_variable = id(holder) in self._namespaces or type(holder) is CellType
            is_shown = referrer == self._nodes.parent[at] or (named and of_variable)
            if not is_shown:
                found[self._reference(referrer, obj)] = None
        return tuple(found)

    def _reference(self, referrer: int, obj: object) -> str:
        """Say how one object refers to another: by its name, or by what it is."""
        part = self._places[referrer].part
        path, step = self._paths(referrer)[referrer], exact_step(part, obj)
        if step or is_transparent(part.obj) or anatomy.is_instance(part.obj, dict):
            return path + step
        return f"{path} ({anatomy.qualname(type(part.obj))})"


def exact_step(parent: ChainPart, child: object) -> str:
    """Return how an object refers to another, indices and keys as they are."""
    step = labels.label(parent, child).text
    if step != labels.ANY.text or parent.facet is not Facet.ITSELF:
        return step
    return _position(parent.obj, child) or step


def _position(container: Any, child: object) -> str:
    for kind in (list, tuple, deque):
        if anatomy.is_instance(container, kind):
            at = next((i for i, item in enumerate(kind.__iter__(container)) if item is child), None)
            return "" if at is None else f"[{at}]"
    if anatomy.is_instance(container, dict):
        found = (key for key, value in list(dict.items(container)) if value is child)
        return next((_key(key) for key in found), "")
    return ""


def _key(key: object) -> str:
    """Say a key where that runs no code of the user's, else its type."""
    parts = key if type(key) is tuple else (key,)
    plain = all(any(type(part) is kind for kind in _PRINTED_IN_FULL) for part in parts)
    text = repr(key) if plain else f"<{anatomy.qualified_name(type(key))}>"
    return f"[{text if len(text) <= _LONGEST_KEY else text[: _LONGEST_KEY - 1] + '…'}]"


def _ignore(roots: Roots, obj: object, names: Iterable[str]) -> None:
    direct = [root for root in roots.named if root.obj is obj]
    for name in names:
        matching = [
            root for root in direct if name in (root.path, root.name, root.path.rpartition("·")[2])
        ]
        if not matching:
            known = ", ".join(root.path for root in direct) or "none"
            raise LookupError(
                f"{name!r} is no name of the object; names that can be ignored: {known}"
            )
        for root in matching:
            root.obj = None


_NAMELESS: dict[RootKind | None, tuple[str, str]] = {
    RootKind.NATIVE: ("No name leads to", "native code holds it, or what asks for it"),
    RootKind.GARBAGE: ("No name leads to", "it awaits the garbage collector"),
    None: ("Nothing reaches", "only what asks for it holds it"),
}


def _lost(standing: Reachability) -> AnswerPage:
    """Return the page on an object to which no name leads."""
    what, why = _NAMELESS[standing.root]
    lines = _describe_holders("Held by", standing.holders)
    return AnswerPage(f"{what} this {standing.type}: {why}", lines=lines)


def _describe_holders(title: str, names: Sequence[str]) -> list[str]:
    return [f"{title}:", *(f"  {name}" for name in names)] if names else []


def _links_table(links: Sequence[Link]) -> Table:
    devices = sorted({device for link in links for device in link.device_bytes})
    columns: Columns[Link] = [
        (Column("retained"), lambda link: size(link.host_bytes)),
        *((Column(device), _size_on(device)) for device in devices),
        (Column("type", number=False, flexible=True), lambda link: type_cell(link.type)),
        (Column("path", number=False, flexible=True), lambda link: AnswerCell(link.path)),
    ]
    return table_of(links, columns)


def _size_on(device: str) -> Callable[[Link], AnswerCell]:
    return lambda link: size(link.device_bytes.get(device, 0))
