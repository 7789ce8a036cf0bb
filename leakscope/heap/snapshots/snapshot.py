"""A snapshot: the heap at one moment as numbers and names, taken and queried."""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import cast

from leakscope.heap import anatomy
from leakscope.heap.graph import NATIVE, PATIENCE_SECONDS, Nodes, WalkResult, engine_name, walk
from leakscope.heap.labels import names_by_id
from leakscope.heap.ownership import Definitions, Ownership
from leakscope.heap.pausing import at_rest
from leakscope.heap.roles import Roles
from leakscope.heap.roots import Roots, find_roots, walk_request
from leakscope.heap.row_details import reached_bytes
from leakscope.heap.rows import RowMaker, added
from leakscope.heap.snapshots import answers
from leakscope.heap.snapshots.answers import Difference, Holding, OfType, Rows, Tree, TypeRow, Types
from leakscope.heap.snapshots.reachability import Dominators, PathTo, Reachability, reachability_of
from leakscope.model.census import CensusRow
from leakscope.model.layout import AnswerPage, Printed
from leakscope.model.text import human_bytes, plural

_SHOWN = 10
_INDEX = re.compile(r"\[-?\d+\]")


@dataclass(frozen=True)
class Options:
    """How a snapshot was taken; only snapshots taken alike can be compared."""

    project_root: str
    full: bool
    least_bytes: int
    most_objects: int


@dataclass(frozen=True, repr=False)
class Snapshot(Printed):
    """The heap at one moment. It holds numbers and names, and none of the program's objects."""

    rows: tuple[CensusRow, ...]
    """All rows: the user's first, then libraries'; the heaviest first."""
    type_rows: tuple[TypeRow, ...]
    """All types, the heaviest first."""
    objects: int
    """Python objects that were reached."""
    heap_bytes: int
    """Their shallow bytes, without tensor storages and array data."""
    payload_bytes: dict[str, int]
    """Tensor storages and array data per device, ``host`` included."""
    components: dict[str, dict[str, int]]
    """Bytes by the part they play (``parameters``, ``gradients``, ``accumulation``, …) and by
    device; together the heap and the payload."""
    garbage_bytes: int | None
    """Host bytes that nothing reaches and that await the collector; None unless ``full``."""
    graph_truncated: bool
    """Whether autograd graphs were too large to be followed to their ends: what keeps them is
    larger than its row says."""
    incomplete: bool
    """Whether more of the user's objects than ``most_objects`` were worth a row."""
    pause_s: float
    """How long the program stood still, in seconds."""
    engine: str
    """``native`` or ``reference``."""
    options: Options

    def biggest(self, n: int = 20, *, libraries: bool = False) -> Rows:
        """Return the rows that retain most, the heaviest first.

        A row's ``host_bytes`` and ``device_bytes`` are what would be freed if its objects went, as
        far as your own names go that live long: that a library or a running function refers to the
        same is not looked at here, but by :meth:`path_to` and :meth:`dominators_of`.

        Args:
            n: how many rows at most.
            libraries: also rows of libraries' names, from 64 KiB on.

        Raises:
            ValueError: ``n`` is less than one.

        """
        _check_number(n, "n")
        rows = self._rows_of(libraries=libraries)
        heaviest = sorted(rows, key=answers.is_heavier)[:n]
        if not heaviest:
            least = human_bytes(self.options.least_bytes)
            return Rows([], f"None of your names retains {least} or more")
        of = f"the {n} biggest of {len(rows)} rows" if len(rows) > n else plural(len(rows), "row")
        return Rows(heaviest, f"By retained size: {of}")

    def tree(
        self, name: str | None = None, *, depth: int = 3, n: int = 8, libraries: bool = False
    ) -> Tree:
        """Return what lies under a name: what is reached through it first, the heaviest first.

        Args:
            name: a row's path (``main()·trainer``), its name (``Trainer.history``) or what one
                would write in the program (``trainer.history[3]``); all names by default.
            depth: how many levels below the name.
            n: how many children of each.
            libraries: where no name is given, also libraries' names.

        Raises:
            LookupError: there is no such row, or several; the message tells which are near.
            ValueError: ``depth`` or ``n`` is less than one.

        """
        _check_number(depth, "depth")
        _check_number(n, "n")
        children: dict[str, list[CensusRow]] = {}
        for row in self.rows:
            children.setdefault(row.parent, []).append(row)
        if name is not None:
            return _tree(self.row(name), children, depth, n)
        tops = [row for row in children.get("", []) if row.user or libraries]
        return _tree(None, {**children, "": tops}, depth, n)

    def row(self, name: str) -> CensusRow:
        """Return the row of a name.

        Args:
            name: a row's path, its name, or what one would write in the program.

        Raises:
            LookupError: there is no such row, or several; the message tells which are near.

        """
        if not isinstance(name, str):
            raise TypeError(
                "a name is text, such as 'trainer.history'; for an object ask path_to()"
            )
        for spoken in _SPOKEN:
            found = [row for row in self.rows if spoken(row) in (name, _INDEX.sub("[*]", name))]
            if len(found) == 1:
                return found[0]
            if found:
                paths = ", ".join(repr(row.path) for row in found[:_SHOWN])
                raise LookupError(
                    f"{name!r} stands for several rows; say which by its path: {paths}"
                )
        known = dict.fromkeys(
            spoken(row) for spoken in (_SPOKEN[-1], _SPOKEN[1]) for row in self.rows
        )
        raise LookupError(
            f"no row is called {name!r}{_near(name, known)}; a name has a row where its objects "
            f"retain {human_bytes(self.options.least_bytes)} or more: snapshot(least_bytes=…)"
        )

    def path_to(self, obj: object, *, ignoring: Iterable[str] = ()) -> PathTo:
        """Return the way from a name to an object as it is now, and who else holds it.

        A snapshot holds no objects, so the heap is walked again.

        Args:
            obj: the object.
            ignoring: names for the object itself that don't count, such as the variable you ask
                with: ``path_to(batch, ignoring=["batch"])``.

        Raises:
            LookupError: a name in ``ignoring`` is no name of the object.
            ValueError: ``obj`` is None, a bool or another object that the interpreter shares.

        """
        return PathTo(self._standing(obj, ignoring, human=True))

    def dominators_of(self, obj: object, *, ignoring: Iterable[str] = ()) -> Dominators:
        """Return what alone keeps an object alive now, from the nearest up to the name.

        Were one of them gone, the object would be freed. Empty where several hold it independently,
        among them the variable you ask with: leave that out with ``ignoring``. What only native
        code or a statement under way refers to can't be seen. The heap is walked again.

        Args:
            obj: the object.
            ignoring: names for the object itself that don't count.

        Raises:
            LookupError: a name in ``ignoring`` is no name of the object.
            ValueError: ``obj`` is None, a bool or another object that the interpreter shares.

        """
        return Dominators(self._standing(obj, ignoring, human=False))

    def types(self, n: int = 20, *, by: str = "bytes") -> Types:
        """Return totals by type.

        Args:
            n: how many types at most.
            by: ``bytes`` (shallow, with tensor storages on all devices) or ``count``.

        Raises:
            ValueError: ``n`` is less than one or ``by`` is neither.

        """
        _check_number(n, "n")
        if by not in ("bytes", "count"):
            raise ValueError(f"by is 'bytes' or 'count', not {by!r}")
        most = sorted(self.type_rows, key=lambda row: (-row.count, row.type))
        rows = most if by == "count" else self.type_rows
        title = f"The {min(n, len(rows))} biggest of {len(rows)} types by {by}"
        return Types(rows[:n], title)

    def of_type(self, kind: type | str, *, subclasses: bool = False) -> OfType:
        """Return the objects of a type: totals, those with a name of their own, what holds them.

        Args:
            kind: a class, its qualified name (``torch.nn.modules.linear.Linear``) or its bare name
                (``Linear``), which stands for all classes that are called so.
            subclasses: also objects of classes that inherit from it.

        Raises:
            LookupError: ``kind`` is a name that no object's type has; of a class there may be none.
            TypeError: ``kind`` is neither a class nor text.

        """
        wanted = kind if type(kind) is str else _qualified_name(kind)
        found = self._types_called(wanted, any_module=type(kind) is str, subclasses=subclasses)
        if not found and type(kind) is str:
            known = dict.fromkeys(
                name for row in self.type_rows for name in (answers.bare(row.type), row.type)
            )
            raise LookupError(f"no object's type is called {wanted!r}{_near(wanted, known)}")
        names = {row.type for row in found}
        return OfType(
            kind=wanted,
            types=tuple(found),
            rows=tuple(sorted((r for r in self.rows if r.type in names), key=answers.is_heavier)),
            holders=tuple(self._holdings(names)),
        )

    def difference(self, before: Snapshot, *, libraries: bool = False) -> Difference:
        """Return what changed since an earlier snapshot; ``after - before`` says the same.

        Args:
            before: the earlier snapshot, taken with the same options.
            libraries: also libraries' names.

        Raises:
            ValueError: the snapshots were taken with different options.

        """
        if not isinstance(before, Snapshot):
            raise TypeError("a snapshot is compared with another: after.difference(before)")
        _check_alike(self.options, before.options)
        parts = answers.changes(
            before._rows_of(libraries=libraries), self._rows_of(libraries=libraries)
        )
        appeared, grew, shrank, vanished = map(tuple, parts)
        less = {device: -amount for device, amount in before.payload_bytes.items()}
        return Difference(
            appeared,
            grew,
            shrank,
            vanished,
            types=tuple(answers.type_changes(before.type_rows, self.type_rows)),
            objects=self.objects - before.objects,
            heap_bytes=self.heap_bytes - before.heap_bytes,
            payload_bytes=added([less, self.payload_bytes]),
            incomplete=self.incomplete or before.incomplete,
        )

    def __sub__(self, before: Snapshot) -> Difference:
        if not isinstance(before, Snapshot):
            return NotImplemented
        return self.difference(before)

    def page(self) -> AnswerPage:
        """Return the totals and the biggest rows."""
        payload = [
            f"{human_bytes(amount)} of tensors and arrays {answers.place(device)}"
            for device, amount in self.payload_bytes.items()
            if amount
        ]
        title = f"Heap snapshot: {plural(self.objects, 'object')}, "
        title += ", ".join([f"{human_bytes(self.heap_bytes)} of Python objects", *payload])
        heaviest = self.biggest(_SHOWN)
        caption = heaviest.page().title
        return AnswerPage(
            title,
            lines=self._remarks() if heaviest else [*self._remarks(), caption],
            tables=[answers.rows_table(heaviest, caption)] if heaviest else [],
            notes=[
                *answers.notes_on(row.name for row in heaviest),
                "Ask: .biggest() .tree() .types() .of_type() .path_to() .dominators_of() and -",
            ],
        )

    def _remarks(self) -> list[str]:
        lines = [f"Taken in {self.pause_s:.2g} s by the {self.engine} engine."]
        if self.garbage_bytes:
            lines.append(f"{human_bytes(self.garbage_bytes)} of it await the garbage collector.")
        if self.graph_truncated:
            lines.append("Autograd graphs were not followed to their ends: they hold more.")
        if self.incomplete:
            lines.append(
                f"Only the {self.options.most_objects:,} heaviest objects have rows: "
                "raise most_objects or least_bytes."
            )
        return lines

    def _rows_of(self, *, libraries: bool) -> Sequence[CensusRow]:
        return self.rows if libraries else [row for row in self.rows if row.user]

    def _standing(self, obj: object, ignoring: Iterable[str], *, human: bool) -> Reachability:
        if obj is None or obj is True or obj is False or obj is ... or obj is NotImplemented:
            raise ValueError(f"{obj!r} is one object that everybody shares: ask about your own")
        names = (ignoring,) if isinstance(ignoring, str) else tuple(ignoring)
        return reachability_of(
            obj,
            project_root=self.options.project_root,
            engine=self.engine,
            ignoring=names,
            human=human,
        )

    def _types_called(self, name: str, *, any_module: bool, subclasses: bool) -> list[TypeRow]:
        known = {row.type for row in self.type_rows}
        if subclasses:
            known.update(base for row in self.type_rows for base in row.bases)
        wanted = known & {name} or {k for k in known if any_module and answers.bare(k) == name}
        return [
            row
            for row in self.type_rows
            if row.type in wanted or (subclasses and not wanted.isdisjoint(row.bases))
        ]

    def _holdings(self, names: set[str]) -> list[Holding]:
        found = [
            Holding(row, content.count, content.bytes)
            for row in self.rows
            for content in row.holds
            if content.type in names
        ]
        return sorted(found, key=lambda holding: (-holding.count, holding.row.path))


def _tree(row: CensusRow | None, children: dict[str, list[CensusRow]], depth: int, n: int) -> Tree:
    path = row.path if row is not None else ""
    below = sorted(children.get(path, []), key=lambda row: (-reached_bytes(row), row.path))
    shown = below[:n] if depth else []
    rest = below[len(shown) :]
    return Tree(
        row=row,
        children=tuple(_tree(child, children, depth - 1, n) for child in shown),
        omitted=len(rest),
        omitted_bytes=sum(map(reached_bytes, rest)),
    )


_SPOKEN: tuple[Callable[[CensusRow], str], ...] = (
    lambda row: row.path,
    lambda row: row.name,
    lambda row: row.path.replace("·", "."),
    lambda row: row.path.partition("·")[2].replace("·", "."),
)
"""What a person may call a row: its path, its name, the path with dots, without the function."""


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, [text for text in known if text], n=5, cutoff=0.6)
    return f" (near it: {', '.join(map(repr, near))})" if near else ""


def _qualified_name(kind: object) -> str:
    if not anatomy.is_instance(kind, type):
        raise TypeError("ask for a class or for the name of one, such as 'torch.Tensor'")
    return anatomy.qualified_name(cast("type", kind))


def _check_number(number: int, name: str) -> None:
    if not isinstance(number, int) or number < 1:
        raise ValueError(f"{name} is a number from 1 on, not {number!r}")


def _check_alike(first: Options, second: Options) -> None:
    differing = [
        f"{name}={getattr(second, name)!r} and {getattr(first, name)!r}"
        for name in Options.__dataclass_fields__
        if getattr(first, name) != getattr(second, name)
    ]
    if differing:
        raise ValueError(
            "the snapshots can't be compared: they were taken with "
            f"{'; '.join(differing)}; take both with the same options"
        )


_LIBRARY_BYTES = 1 << 16
"""Of libraries' names thousands retain a little."""


def snapshot(
    *,
    project_root: str | os.PathLike[str] | None = None,
    full: bool = True,
    least_bytes: int = 1024,
    most_objects: int = 10_000,
    engine: str | None = None,
) -> Snapshot:
    """Return the heap of this process at this moment, for a person to ask.

    The program stands still meanwhile; none of its code runs and none of its objects is kept alive.
    Nothing is collected first: call ``gc.collect()`` before if garbage should not be counted.

    Args:
        project_root: the folder of your own code, whose names come first; the working directory by
            default. ``__main__``, a notebook and what is typed into a shell are always yours.
        full: also look at libraries, at what only native code holds and at garbage; without it only
            what your own names reach, which is faster.
        least_bytes: names have a row where their objects retain this much, in bytes.
        most_objects: how many objects are named at most, the heaviest first; each costs time.
        engine: ``native`` or ``reference`` (plain Python, slow); the faster one by default.

    Raises:
        ValueError: an option is out of its range, or the engine was not built.

    """
    root = Path.cwd() if project_root is None else Path(project_root).resolve()
    options = Options(str(root), full, least_bytes, most_objects)
    _check(options, engine)
    began = perf_counter()
    ownership = Ownership(options.project_root)  # it asks for the real paths of folders
    taken, _ = at_rest(lambda: _taken(options, engine, ownership), PATIENCE_SECONDS)
    return replace(taken, pause_s=perf_counter() - began)


def _taken(options: Options, engine: str | None, ownership: Ownership) -> Snapshot:
    definitions = Definitions(ownership)
    roots = find_roots(ownership, definitions, full=options.full)
    request = replace(
        walk_request(roots, full=options.full),
        cutoff_bytes=options.least_bytes,
        max_selected=options.most_objects,
        count_types=True,
    )
    result = walk(request, engine=engine)
    maker = RowMaker(result, roots, ownership, definitions)
    roles = Roles(result, maker)
    return Snapshot(
        rows=_rows(result, roots, maker, roles),
        type_rows=_type_rows(result),
        objects=result.objects,
        heap_bytes=result.heap_bytes,
        payload_bytes=result.payload_bytes,
        components=roles.components(),
        garbage_bytes=result.garbage_bytes,
        graph_truncated=result.graph_truncated,
        incomplete=_is_incomplete(result, roots, options),
        pause_s=0.0,
        engine=result.engine,
        options=options,
    )


def _rows(result: WalkResult, roots: Roots, maker: RowMaker, roles: Roles) -> tuple[CensusRow, ...]:
    made = maker.drafts(among=_heavy(result.nodes, roots))
    drafts = [
        draft
        for draft in made
        if maker.is_user(draft.first) or maker.reached(draft) >= _LIBRARY_BYTES
    ]
    rows = [maker.row(draft, roles.of_draft) for draft in drafts]
    return tuple(sorted(rows, key=lambda row: (not row.user, -reached_bytes(row), row.path)))


def _heavy(nodes: Nodes, roots: Roots) -> list[bool]:
    """Return which selected nodes may stand in a row: of libraries' few, and naming costs most.

    Nodes that share a path share its beginning. So a path reaches no more than all together whose
    paths begin with the same name do.
    """
    beginnings = _beginnings(nodes, roots)
    reached: Counter[str] = Counter()
    columns = zip(beginnings, nodes.reached_bytes, nodes.selected, strict=True)
    for beginning, sizes, selected in columns:
        if selected and beginning is not None:
            reached[beginning] += sum(sizes.values())
    return [
        selected and (beginning is None or reached[beginning] >= _LIBRARY_BYTES)
        for beginning, selected in zip(beginnings, nodes.selected, strict=True)
    ]


def _beginnings(nodes: Nodes, roots: Roots) -> list[str | None]:
    """Return the name with which each node's path begins; None for nodes of the user's."""
    found: list[str | None] = []
    names: dict[int, dict[int, str]] = {}
    for obj, parent, number in zip(nodes.objects, nodes.parent, nodes.root, strict=True):
        if 0 <= number < roots.user_count:
            found.append(None)
        elif parent < 0:
            found.append(_root_beginning(obj, number, roots))
        elif nodes.parent[parent] < 0 and roots.is_namespace(number):
            if number not in names:
                names[number] = names_by_id(nodes.objects[parent])
            name = names[number].get(id(obj), "[*]").partition(".")[0]
            found.append(f"{found[parent]}·{name}")
        else:
            found.append(found[parent])
    return found


def _root_beginning(obj: object, number: int, roots: Roots) -> str:
    if number < 0:
        return f"{number} {anatomy.qualified_name(type(obj))}"
    root = roots.root(number, obj)
    if roots.is_of_a_call(number):
        return root.path
    module, _, name = root.path.partition("·")
    return f"{module}·{name.partition('.')[0]}" if name else module


def _type_rows(result: WalkResult) -> tuple[TypeRow, ...]:
    found: dict[str, TypeRow] = {}
    for total in result.types:
        name = anatomy.qualified_name(total.type)
        known = found.get(name)
        known_bytes = known.payload_bytes if known else {}
        found[name] = TypeRow(
            type=name,
            count=total.count + (known.count if known else 0),
            bytes=total.bytes + (known.bytes if known else 0),
            payload_bytes=added([known_bytes, total.payload_bytes]),
            bases=tuple(anatomy.qualified_name(base) for base in anatomy.mro(total.type)[1:]),
        )
    return tuple(sorted(found.values(), key=lambda row: (-row.total_bytes, -row.count, row.type)))


def _is_incomplete(result: WalkResult, roots: Roots, options: Options) -> bool:
    """The user's objects are selected first: if all that were selected are, some were not."""
    nodes = result.nodes
    chosen = [root for root, is_chosen in zip(nodes.root, nodes.selected, strict=True) if is_chosen]
    return len(chosen) >= options.most_objects and all(
        NATIVE < root < roots.user_count for root in chosen
    )


def _check(options: Options, engine: str | None) -> None:
    if not Path(options.project_root).is_dir():
        raise ValueError(f"project_root is no folder: {options.project_root!r}")
    if options.least_bytes < 0:
        raise ValueError(f"least_bytes is a number from 0 on, not {options.least_bytes!r}")
    if options.most_objects < 1:
        raise ValueError(f"most_objects is a number from 1 on, not {options.most_objects!r}")
    known = dict.fromkeys([engine_name(), "reference"])
    if engine is not None and engine not in known:
        raise ValueError(f"engine is {' or '.join(map(repr, known))} here, not {engine!r}")
