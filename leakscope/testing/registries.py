"""Growth outside of containers, each reported once: classes, ``atexit`` handlers, threads, names
of modules.

The interpreter keeps these in registries of its own, several at once, so that rows of the census
would show each of them many times or not at all.
"""

from __future__ import annotations

import ast
import atexit
import gc
import linecache
import re
import struct
import sys
import tracemalloc
import types
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from leakscope.heap import anatomy
from leakscope.heap.anatomy import header_bytes, sizer_of
from leakscope.heap.graph import Nodes
from leakscope.heap.ownership import Definitions, Ownership
from leakscope.heap.roots import Root
from leakscope.heap.rows import retained_on_host
from leakscope.model.census import CensusRow, Content, RootKind, Site
from leakscope.model.documents import Growth
from leakscope.model.errors import ours

if TYPE_CHECKING:  # a clean scenario imports nothing that analyses
    from leakscope.analysis.columns.series import RowTable
    from leakscope.analysis.growth.rows import Grower

_CLASSES_REMEDY = "Make the class once, outside of what is called again and again"
_NUMBER = re.compile(r"\d+")
_SOME = 100
_LISTED_OTHERWISE = 0.1
"""What part of as many classes may come or go meanwhile in the same lists."""


def class_roots(
    ownership: Ownership, definitions: Definitions, named: Sequence[Root]
) -> Iterator[Root]:
    """Yield a root for each of the user's classes that no module has a name for.

    Those that differ in numbers alone have one name: ``Record*``.
    """
    known = {id(root.obj) for root in named}
    alike: dict[tuple[str, str], list[type]] = {}
    for cls in _classes(ownership):
        if id(cls) not in known:
            name = _NUMBER.sub("*", anatomy.qualname(cls))
            alike.setdefault((anatomy.module_name(cls), name), []).append(cls)
    for (module, name), classes in alike.items():
        for cls in classes:
            text = name if len(classes) > 1 else anatomy.qualname(cls)
            shown = text.replace("<locals>.", "")
            owner = definitions.class_(cls, "")
            yield Root(cls, RootKind.CLASS_ATTRIBUTE, f"{module}·{text}", shown, owner)


def latest_classes(ownership: Ownership) -> list[object]:
    """Return some of the user's classes, the latest among them."""
    # The collector tells of its youngest generation first, and of each in order of age.
    found: list[object] = [*_classes(ownership)]
    return [*found[:_SOME], *found[_SOME:][-_SOME:]]


def _classes(ownership: Ownership) -> Iterator[type]:
    for obj in gc.get_objects():
        if anatomy.is_instance(obj, type) and ownership.owns_class(obj):
            yield obj


def with_classes_once(
    table: RowTable, growers: Sequence[Grower], paths: Collection[str]
) -> list[Grower]:
    """Return growers, classes as growth of what gathers as many items; else by themselves.

    Where their bases list them, which no name leads to, nothing else is reported of it. ``paths``
    are those under which classes stand that no module has a name for.
    """
    left = list(growers)
    for made in [g for g in growers if table.latest[g.path].path in paths]:
        others = [g for g in left if g is not made]
        alike = [g for g in others if _items_less_classes(table, g, made) == 0]
        keeper = next((g for g in alike if not _is_native(table, g)), None)
        native = [g for g in left if _is_native(table, g) and _lists(table, g, made)]
        left = [g for g in left if g not in native]
        if keeper is not None:
            both = _joined(keeper, [keeper, made])
            left = [both if g is keeper else g for g in left if g is not made]
    return sorted(left, key=lambda g: (-g.trend.bytes_per_unit, g.path))


def as_class_growth(growth: Growth) -> Growth:
    """Return growth of classes of one name in words for it, where they become more."""
    if not growth.objects_per_call:
        return growth
    holder = f"What is taken by classes called {growth.holder}"
    return msgspec.structs.replace(growth, holder=holder, advice=_CLASSES_REMEDY, diff="")


def _joined(holder: Grower, parts: Sequence[Grower]) -> Grower:
    """Return the growth of a holder with all that several gain."""
    rate = sum(part.trend.bytes_per_unit for part in parts)
    return replace(
        holder,
        trend=msgspec.structs.replace(holder.trend, bytes_per_unit=rate, interval=(rate, rate)),
        gained=sum(part.gained for part in parts),
    )


def _is_native(table: RowTable, grower: Grower) -> bool:
    return table.latest[grower.path].root is RootKind.NATIVE


def _lists(table: RowTable, grower: Grower, made: Grower) -> bool:
    """Return whether these may be where bases list their subclasses, those of others among them."""
    is_dict = table.latest[grower.path].type == "dict"
    most = _LISTED_OTHERWISE * _objects_gained(table, made.path, made)
    return is_dict and abs(_items_less_classes(table, grower, made)) <= most


def _items_less_classes(table: RowTable, grower: Grower, made: Grower) -> int:
    items = (grower.items_per_unit or 0.0) * grower.units
    return round(items - _objects_gained(table, made.path, made))


def _objects_gained(table: RowTable, path: int, during: Grower) -> float:
    """Return by how much the objects at a path became more while something grew."""
    count = np.nan_to_num(table.count[path, during.columns])
    return float(count[-1] - count[0])


ATEXIT_PATH = "atexit"
_HANDLER_BYTES = struct.calcsize("PPP") if sys.version_info < (3, 14) else None
"""The block of each handler (``atexit_py_callback`` in ``Modules/atexitmodule.c``)."""

_Stack = tuple[tuple[str, int], ...]
"""File and line of the frames that allocated something, the innermost last."""


class ExitHandlers:
    """Follows how many functions wait for the end of the program, and which lines added them."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._first: int | None = None
        self._before: Counter[tuple[_Stack, int]] = Counter()
        self._has_learned = False
        self._bytes_each = 0.0
        self.sites: list[Site] = []
        """The lines that registered what is there still, as far as they are known."""

    @property
    def count(self) -> int:
        """How many were registered."""
        return atexit._ncallbacks()

    def begin(self) -> None:
        """Note what is traced already, before the calls from which ``learn`` shall learn."""
        if self._has_grown:
            self._before = _blocks()

    def learn(self) -> None:
        """Learn from tracemalloc which lines have registered what is there still."""
        self._has_learned = True
        if not self._has_grown:
            return
        blocks = _blocks() - self._before
        self._before.clear()
        registering: dict[str, frozenset[int]] = {}
        at: dict[_Stack, list[int]] = defaultdict(lambda: [0, 0])
        for (stack, size), number in blocks.items():
            file, line = stack[-1]
            if file not in registering:
                registering[file] = _registering(file)
            if line in registering[file]:
                at[stack][0] += number if _HANDLER_BYTES in (size, None) else 0
                at[stack][1] += number * size
        seen = [(stack, number, size) for stack, (number, size) in at.items() if number]
        registered = sum(number for _, number, _ in seen)
        self._bytes_each = sum(size for *_, size in seen) / max(1, registered)
        self.sites = [*self._sites(seen)] if registered else []

    def row(self) -> CensusRow:
        """Return how many there are, as a row; once learned, no more than at first if none stay."""
        count = self.count
        if self._first is None:
            self._first = count
        if self._has_learned and not self._bytes_each:
            count = self._first
        return CensusRow(
            path=ATEXIT_PATH,
            name=ATEXIT_PATH,
            root=RootKind.LIBRARY,
            user=False,
            type="list",
            kind="list",
            host_bytes=max(0, round(self._bytes_each * (count - self._first))),
            length=count,
            allocated_at=list(self.sites),
        )

    @property
    def _has_grown(self) -> bool:
        return self._first is not None and self.count > self._first

    def _sites(self, seen: list[tuple[_Stack, int, int]]) -> Iterator[Site]:
        for stack, number, size in seen:
            lines = (place for place in reversed(stack) if self._ownership.owns_file(place[0]))
            file, line = next(lines, ("", 0))
            if file:
                yield Site(file=file, line=line, bytes=size, count=number)


def _blocks() -> Counter[tuple[_Stack, int]]:
    """Return how many blocks are traced, by what allocated them and their size."""
    found: Counter[tuple[_Stack, int]] = Counter()
    for trace in tracemalloc.take_snapshot().traces:
        found[tuple((frame.filename, frame.lineno) for frame in trace.traceback), trace.size] += 1
    return found


def _registering(file: str) -> frozenset[int]:
    """Return the lines of a file on which a function is registered."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except ours(Exception):
        return frozenset()
    nodes = [*ast.walk(tree)]
    modules, functions = _names_of_register(nodes)
    called: list[tuple[ast.expr, ast.expr]] = []
    for node in nodes:
        if isinstance(node, ast.Call):
            called.append((node.func, node))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            called += [(decorator, decorator) for decorator in node.decorator_list]
    return frozenset(
        line
        for function, whole in called
        if _is_register(function, modules, functions)
        for line in range(whole.lineno, (whole.end_lineno or whole.lineno) + 1)
    )


def _is_register(called: ast.expr, modules: set[str], functions: set[str]) -> bool:
    if isinstance(called, ast.Attribute) and called.attr == "register":
        return isinstance(called.value, ast.Name) and called.value.id in modules
    return isinstance(called, ast.Name) and called.id in functions


def _names_of_register(nodes: list[ast.AST]) -> tuple[set[str], set[str]]:
    """Return what a file calls the module ``atexit``, and what its function ``register``."""
    modules: set[str] = set()
    functions: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {n.asname or n.name for n in node.names if n.name == "atexit"}
        elif isinstance(node, ast.ImportFrom) and node.module == "atexit":
            functions |= {n.asname or n.name for n in node.names if n.name == "register"}
    return modules, functions


THREADS_PATH = "threading·_active"
"""Where the interpreter lists the threads that run."""
THREADS_HOLDER = "What running threads hold (threading._active)"
REMEDIES = {
    ATEXIT_PATH: "Register once, or take back what was registered with atexit.unregister()",
    THREADS_PATH: "Let threads end: join them, shut their pool down, or reuse one",
}
_IN_FUNCTION = "()·"
"""What the path of a running function's local variable has after its name."""
_LISTS = frozenset(
    {
        THREADS_PATH,
        "threading·_dangling.data",
        "threading·_shutdown_locks",
        "concurrent.futures.thread·_threads_queues",
    }
)


def with_threads_once(table: RowTable, growers: Sequence[Grower]) -> list[Grower]:
    """Return growers, those that are there once for each running thread as one of them all."""
    running = next((g for g in growers if table.latest[g.path].path == THREADS_PATH), None)
    if running is None:
        return list(growers)
    theirs = [g for g in growers if _is_of_threads(table, g, running)]
    others = [g for g in growers if g not in theirs]
    whole = _joined(running, theirs)
    return sorted([whole, *others], key=lambda g: (-g.trend.bytes_per_unit, g.path))


def _is_of_threads(table: RowTable, grower: Grower, running: Grower) -> bool:
    row = table.latest[grower.path]
    if row.path in _LISTS:
        return True
    more = _objects_gained(table, grower.path, running)
    started = (running.items_per_unit or 0.0) * running.units
    return _IN_FUNCTION in row.path and round(more) == round(started)


NAMESPACE_REMEDY = "Assign to the same name each time, or delete the names after use"
_NAMESPACE = "globals()"
_HOST = "host"


def is_namespace(row: CensusRow) -> bool:
    """Return whether a row is that of a module's names."""
    return row.path.endswith(f"·{_NAMESPACE}")


class ModuleNames:
    """Follows which names the user's modules have; it keeps the names and nothing else."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._first: dict[str, frozenset[str]] = {}
        """The names that each module had when it was first looked at."""

    def counts(self) -> dict[str, int]:
        """Return how many variables each of the user's modules has."""
        return {
            module: sum(1 for _ in _variables(names))
            for module, names in self._ownership.user_modules()
        }

    def rows(self, nodes: Nodes) -> Iterator[tuple[CensusRow, object]]:
        """Yield a row and the namespace of each module: how many variables, and what new ones
        keep, their names included.

        Where there are no more of them than at first, they were replaced, and keep nothing new.
        """
        weights = {
            id(obj): (retained_on_host(nodes, at), nodes.device_bytes[at])
            for at, obj in enumerate(nodes.objects)
            if nodes.parent[at] < 0 and nodes.selected[at]
        }
        for module, names in self._ownership.user_modules():
            variables = dict(_variables(names))
            first = self._first.setdefault(module, frozenset(variables))
            old = {id(value) for name, value in variables.items() if name in first}
            new = [name for name in variables if name not in first]
            if len(variables) <= len(first):
                new.clear()
            kept = {id(obj): obj for name in new for obj in (name, variables[name])}
            added = [obj for key, obj in kept.items() if key not in old]
            yield _row(module, len(variables), added, weights), names

    def forget(self) -> None:
        """Let go of the names."""
        self._first.clear()


def _variables(names: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield what a module's own code calls so: not its submodules, not what the interpreter adds.

    An import adds a submodule to its package, which ``sys.modules`` shows better.
    """
    for name, value in list(names.items()):
        if type(name) is not str or (name.startswith("__") and name.endswith("__")):
            continue
        if not anatomy.is_instance(value, types.ModuleType):
            yield name, value


def _row(
    module: str,
    variables: int,
    added: Iterable[object],
    weights: Mapping[int, tuple[int, dict[str, int]]],
) -> CensusRow:
    on_devices: dict[str, int] = defaultdict(int)
    by_type: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for obj in added:
        cls = type(obj)
        # What comes to less than a census tells of is known by itself alone.
        host, others = weights.get(id(obj)) or (int(sizer_of(cls)(obj)) + header_bytes(cls), {})
        holding = by_type[anatomy.qualified_name(cls)]
        holding[0] += 1
        for device, size in ((_HOST, host), *others.items()):
            on_devices[device] += size
            holding[1] += size
    holds = [Content(type=name, count=n, bytes=size) for name, (n, size) in by_type.items()]
    shown = _NAMESPACE if module == "__main__" else f"{module}.{_NAMESPACE}"
    return CensusRow(
        path=f"{module}·{_NAMESPACE}",
        name=shown,
        root=RootKind.GLOBAL,
        type="dict",
        kind="dict",
        host_bytes=on_devices.pop(_HOST, 0),
        device_bytes=dict(on_devices),
        length=variables,
        holds=sorted(holds, key=lambda content: -content.bytes),
    )
