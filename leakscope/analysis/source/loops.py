"""How long the variables of a training loop live: until the next batch, until a line, or on.

Python keeps what a variable refers to until the name gets another value, so the tensors of one
iteration lie beside those of the next. Whether that matters, and whether a ``del`` may be written
at all, is read from the source: every reading of the variable must come after an assignment to it
in the same pass, otherwise it carries something over on purpose.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from leakscope.analysis.source.program import (
    LOOPS,
    FunctionNode,
    Program,
    Scope,
    Statement,
    own_nodes,
)

_TURNING = ("backward", "manual_backward")
_STEPPING = ("step", "training_step")
_MODES = ("train", "eval")
_CALLS_DEEP = 3


class Fate(Enum):
    """What becomes of a variable's value in the next iteration."""

    NEXT_BATCH = "next batch"
    """The loop itself replaces it, as soon as the next batch is there."""
    REPLACED = "replaced"
    """A line before the backward pass replaces it."""
    STAYS = "stays"
    """It lives through the next forward and backward pass."""


@dataclass(frozen=True)
class Lifetime:
    """How long a variable of the loop outlives its iteration."""

    name: str
    fate: Fate
    file: str
    made_at: int
    """Line that gives it the value last."""
    replaced_at: int | None
    """Line of the next iteration that replaces it."""
    last_used: ast.stmt | None
    """The statement after which nothing reads it, None where there are several."""


def training_loop(program: Program, scope: Scope) -> ast.stmt | None:
    """Return the loop of a function or module whose iterations are training steps."""
    for wanted in (_TURNING, _STEPPING):
        for statement in _statements(program, scope):
            if statement.loops and _does(program, statement, wanted, _CALLS_DEEP):
                return statement.loops[-1]
    return None


def lifetime(program: Program, scope: Scope, loop: ast.stmt, name: str) -> Lifetime | None:
    """Return how long a variable outlives an iteration of the training loop.

    None where it is made once outside of all loops, where something reads it in a later pass or in
    another function, and where that can't be told.
    """
    mine = _statements(program, scope)
    stores = [s for s in mine if _stores(s, name)]
    if not any(s.loops or isinstance(s.node, LOOPS) for s in stores):
        return None
    if any(b.how in {"param", "import"} for b in scope.bindings.get(name, [])):
        return None
    loads = [s for s in program.mentioning(name) if _loads(s, name)]
    if any(s.scope is not scope and s.scope.resolve(name) is scope for s in loads):
        return None
    own_loads = [s for s in loads if s.scope is scope]
    served = _Served(mine, stores)
    if not all(served.in_the_same_pass(load, loop) for load in own_loads):
        return None
    fate, line = _fate(program, scope, loop, name, stores)
    return Lifetime(
        name=name,
        fate=fate,
        file=scope.module.file,
        made_at=stores[-1].line,
        replaced_at=line,
        last_used=served.last_used(stores[0], own_loads) if len(stores) == 1 else None,
    )


class _Served:
    """Tells readings that find a value of their own pass from those that find an older one."""

    def __init__(self, statements: list[Statement], stores: list[Statement]) -> None:
        self._stores = stores
        self._around = {
            id(s.node.body): s for s in statements if isinstance(s.node, (ast.With, ast.AsyncWith))
        }

    def in_the_same_pass(self, load: Statement, training: ast.stmt) -> bool:
        """Return whether no value that any assignment made in its loops can last until here."""
        before = [store for store in self._stores if self._reaches(store, load)]
        if training in load.loops and not any(_is_in(store, training) for store in before):
            return False
        return all(
            any(store.loops[: len(other.loops)] == other.loops for store in before)
            for other in self._stores
        )

    def last_used(self, store: Statement, loads: list[Statement]) -> ast.stmt | None:
        """Return the statement, always come to after the assignment, behind which none reads it."""
        last = max([load.line for load in loads], default=store.line)
        block = store.node.body if isinstance(store.node, LOOPS) else store.block
        while True:
            using = next((node for node in block if _spans(node, last)), None)
            around = self._around.get(id(block))
            if using is not None or around is None:
                return using
            block = around.block

    def _reaches(self, store: Statement, load: Statement) -> bool:
        """Return whether an assignment comes first whenever a reading is come to."""
        if store.node is not load.node and _spans(store.node, load.line):
            return True  # the header of a loop or a `with` around the reading
        at = next(i for i, node in enumerate(store.block) if node is store.node)
        if any(_spans(node, load.line) for node in store.block[at + 1 :]):
            return True
        around = self._around.get(id(store.block))
        return around is not None and self._reaches_past(around, load)

    def _reaches_past(self, around: Statement, load: Statement) -> bool:
        return not _spans(around.node, load.line) and self._reaches(around, load)


def _is_in(store: Statement, loop: ast.stmt) -> bool:
    return store.node is loop or loop in store.loops


def _fate(
    program: Program, scope: Scope, loop: ast.stmt, name: str, stores: list[Statement]
) -> tuple[Fate, int | None]:
    if any(s.node is loop for s in stores):
        return Fate.NEXT_BATCH, loop.lineno
    always = {id(node) for node in _unconditional(loop)}
    turning = _turning_line(program, scope, loop)
    deleted = [s for s in _statements(program, scope) if _deletes(s, name)]
    ends = [s.line for s in (*stores, *deleted) if id(s.node) in always and s.line < turning]
    return (Fate.REPLACED, min(ends)) if ends else (Fate.STAYS, None)


def _turning_line(program: Program, scope: Scope, loop: ast.stmt) -> int:
    """Return the line at which activations are released: memory is highest just before it."""
    inside = [s for s in _statements(program, scope) if loop in s.loops]
    for wanted in (_TURNING, _STEPPING):
        lines = [s.line for s in inside if _does(program, s, wanted, _CALLS_DEEP)]
        if lines:
            return min(lines)
    return loop.lineno


def _statements(program: Program, scope: Scope) -> list[Statement]:
    return [s for s in program.statements if s.scope is scope]


def _does(program: Program, statement: Statement, methods: tuple[str, ...], depth: int) -> bool:
    """Return whether a statement calls one of the methods, in the user's functions too."""
    if isinstance(statement.node, (FunctionNode, ast.ClassDef)):
        return False
    for node in own_nodes(statement.node):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in methods:
            return True
        function = _function_called(program, node.func) if depth else None
        inside = _statements(program, function) if function is not None else []
        if any(_does(program, inner, methods, depth - 1) for inner in inside):
            return True
    return False


def _function_called(program: Program, called: ast.expr) -> Scope | None:
    """Return the user's function or method of that name, where there is one only."""
    is_method = isinstance(called, ast.Attribute)
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name in _MODES:
        return None  # of a module, although a trainer may have a `train` too
    fitting = [
        function
        for function in program.functions.get(name, [])
        if is_method == (function.parent is not None and function.parent.kind == "class")
    ]
    return fitting[0] if len(fitting) == 1 else None


def _unconditional(loop: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements that every iteration reaches."""
    pending: list[ast.stmt] = list(getattr(loop, "body", []))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, (ast.With, ast.AsyncWith, ast.Try)):
            pending += node.body


def _stores(statement: Statement, name: str) -> bool:
    if name not in statement.names or isinstance(statement.node, ast.AugAssign):
        return False
    return any(_is(node, name, ast.Store) for node in own_nodes(statement.node))


def _loads(statement: Statement, name: str) -> bool:
    node = statement.node
    if isinstance(node, ast.AugAssign) and _is(node.target, name, ast.Store):
        return True
    return any(_is(inner, name, ast.Load) for inner in own_nodes(node))


def _deletes(statement: Statement, name: str) -> bool:
    return isinstance(statement.node, ast.Delete) and any(
        _is(target, name, ast.Del) for target in statement.node.targets
    )


def _is(node: ast.AST, name: str, context: type[ast.expr_context]) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, context)


def _spans(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)
