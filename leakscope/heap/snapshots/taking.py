"""Taking a snapshot: walk, name, and forget everything but numbers and strings."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from leakscope.heap import anatomy
from leakscope.heap.collector import without_collector
from leakscope.heap.definitions import Definitions
from leakscope.heap.graph import NATIVE, Nodes, WalkResult, engine_name, walk
from leakscope.heap.labels import names_by_id
from leakscope.heap.looking import request_from
from leakscope.heap.memory import reached_bytes
from leakscope.heap.ownership import Ownership
from leakscope.heap.roles import Roles
from leakscope.heap.roots import Roots, find_roots
from leakscope.heap.rows import Draft, RowMaker
from leakscope.heap.snapshots.answers import TypeRow
from leakscope.heap.snapshots.snapshot import Options, Snapshot
from leakscope.model.census import CensusRow

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
    Nothing is collected first: call ``gc.collect()`` before if garbage shall not be counted.

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
    options = Options(_folder(project_root), full, least_bytes, most_objects)
    _check(options, engine)
    began = perf_counter()
    taken = without_collector(_taken, options, engine)
    return replace(taken, pause_s=perf_counter() - began)


def _taken(options: Options, engine: str | None) -> Snapshot:
    ownership = Ownership(options.project_root)
    definitions = Definitions(ownership)
    roots = find_roots(ownership, definitions, full=options.full)
    result = _walked(roots, options, engine)
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


def _walked(roots: Roots, options: Options, engine: str | None) -> WalkResult:
    request = replace(
        request_from(roots, full=options.full),
        cutoff_bytes=options.least_bytes,
        max_selected=options.most_objects,
        count_types=True,
    )
    return walk(request, engine=engine)


def _rows(result: WalkResult, roots: Roots, maker: RowMaker, roles: Roles) -> tuple[CensusRow, ...]:
    made = maker.drafts(among=_heavy(result.nodes, roots))
    drafts = [draft for draft in made if maker.reached(draft) >= _least(maker, draft)]
    rows = [maker.row(draft, roles.of_draft) for draft in drafts]
    return tuple(sorted(rows, key=lambda row: (not row.user, -reached_bytes(row), row.path)))


def _least(maker: RowMaker, draft: Draft) -> int:
    return 0 if maker.is_user(draft.first) else _LIBRARY_BYTES


def _heavy(nodes: Nodes, roots: Roots) -> list[bool]:
    """Return which selected nodes may stand in a row: of libraries' few, and naming costs most.

    Nodes that share a path share its beginning. So a path reaches no more than all together whose
    paths begin with the same name do.
    """
    beginnings = _beginnings(nodes, roots)
    reached: dict[str, int] = {}
    for beginning, sizes, selected in zip(
        beginnings, nodes.reached_bytes, nodes.selected, strict=True
    ):
        if selected and beginning is not None:
            reached[beginning] = reached.get(beginning, 0) + sum(sizes.values())
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
            known = names.get(number)
            if known is None:
                known = names[number] = names_by_id(nodes.objects[parent])
            name = known.get(id(obj), "[*]").partition(".")[0]
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
        payload = dict(known.payload_bytes) if known else {}
        for device, amount in total.payload_bytes.items():
            payload[device] = payload.get(device, 0) + amount
        found[name] = TypeRow(
            type=name,
            count=total.count + (known.count if known else 0),
            bytes=total.bytes + (known.bytes if known else 0),
            payload_bytes=payload,
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


def _folder(path: str | os.PathLike[str] | None) -> str:
    return str(Path.cwd() if path is None else Path(path).resolve())


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
