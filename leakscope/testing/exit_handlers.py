"""Functions that calls register with ``atexit``: only C code holds them, with their arguments.

How many there are the interpreter tells, up to 3.13 with those that were taken back. So each is
believed only where tracemalloc has seen that what its registration allocated is there still.
"""

from __future__ import annotations

import ast
import atexit
import linecache
import struct
import sys
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Iterator

from leakscope.heap.ownership import Ownership
from leakscope.model.census import CensusRow, RootKind, Site
from leakscope.model.interrupts import ours

PATH = "atexit"
ADVICE = "Register once, or take back what was registered with atexit.unregister()"
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
            path=PATH,
            name=PATH,
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
    lines: set[int] = set()
    called: list[tuple[ast.expr, ast.expr]]
    for node in nodes:
        if isinstance(node, ast.Call):
            called = [(node.func, node)]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            called = [(decorator, decorator) for decorator in node.decorator_list]
        else:
            continue
        for function, whole in called:
            if _is_register(function, modules, functions):
                lines.update(range(whole.lineno, (whole.end_lineno or whole.lineno) + 1))
    return frozenset(lines)


def _is_register(called: ast.expr, modules: set[str], functions: set[str]) -> bool:
    if isinstance(called, ast.Attribute) and called.attr == "register":
        return isinstance(called.value, ast.Name) and called.value.id in modules
    return isinstance(called, ast.Name) and called.id in functions


def _names_of_register(nodes: list[ast.AST]) -> tuple[set[str], set[str]]:
    """Return what a file calls the module ``atexit``, and what its function ``register``."""
    modules = {
        name.asname or name.name
        for node in nodes
        if isinstance(node, ast.Import)
        for name in node.names
        if name.name == "atexit"
    }
    functions = {
        name.asname or name.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "atexit"
        for name in node.names
        if name.name == "register"
    }
    return modules, functions
