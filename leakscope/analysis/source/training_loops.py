"""Training loops: how long their variables live, and where they clear the gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from leakscope.analysis.source.program import (
    LOOPS,
    CodeScope,
    FunctionNode,
    Statement,
    UserProgram,
    calls_in,
    dotted,
    keyword_of,
    last_name,
    names_in,
    own_names,
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


def training_loop(program: UserProgram, scope: CodeScope) -> ast.stmt | None:
    """Return the loop of a function or module whose iterations are training steps."""
    for wanted in (_TURNING, _STEPPING):
        for statement in program.statements_of(scope):
            if statement.loops and _does(program, statement, wanted, _CALLS_DEEP):
                return statement.loops[-1]
    return None


def lifetime(program: UserProgram, scope: CodeScope, loop: ast.stmt, name: str) -> Lifetime | None:
    """Return how long a variable outlives an iteration of the training loop.

    None where it is made once outside of all loops, where something reads it in a later pass or in
    another function, and where that is unknown.
    """
    mine = program.statements_of(scope)
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
        is_here = (store.node is training or training in store.loops for store in before)
        if training in load.loops and not any(is_here):
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
        if around is None or _spans(around.node, load.line):
            return False
        return self._reaches(around, load)


def _fate(
    program: UserProgram, scope: CodeScope, loop: ast.stmt, name: str, stores: list[Statement]
) -> tuple[Fate, int | None]:
    if any(s.node is loop for s in stores):
        return Fate.NEXT_BATCH, loop.lineno
    always = {id(node) for node in _unconditional(loop)}
    turning = _turning_line(program, scope, loop)
    deleted = [
        s
        for s in program.statements_of(scope)
        if isinstance(s.node, ast.Delete) and name in map(dotted, s.node.targets)
    ]
    ends = [s.line for s in (*stores, *deleted) if id(s.node) in always and s.line < turning]
    return (Fate.REPLACED, min(ends)) if ends else (Fate.STAYS, None)


def _turning_line(program: UserProgram, scope: CodeScope, loop: ast.stmt) -> int:
    """Return the line at which activations are released: memory is highest just before it."""
    inside = [s for s in program.statements_of(scope) if loop in s.loops]
    for wanted in (_TURNING, _STEPPING):
        lines = [s.line for s in inside if _does(program, s, wanted, _CALLS_DEEP)]
        if lines:
            return min(lines)
    return loop.lineno


def _does(program: UserProgram, statement: Statement, methods: tuple[str, ...], depth: int) -> bool:
    if isinstance(statement.node, (FunctionNode, ast.ClassDef)):
        return False
    for call in calls_in(statement.node):
        if isinstance(call.func, ast.Attribute) and call.func.attr in methods:
            return True
        function = _function_called(program, call.func) if depth else None
        inside = program.statements_of(function) if function is not None else []
        if any(_does(program, inner, methods, depth - 1) for inner in inside):
            return True
    return False


def _function_called(program: UserProgram, called: ast.expr) -> CodeScope | None:
    is_method, name = isinstance(called, ast.Attribute), last_name(called)
    if name in _MODES:
        return None  # of a module, although a trainer may have a `train` too
    fitting = [f for f in program.functions.get(name, []) if f.is_method == is_method]
    return fitting[0] if len(fitting) == 1 else None


def _unconditional(loop: ast.stmt) -> Iterator[ast.stmt]:
    pending: list[ast.stmt] = list(getattr(loop, "body", []))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, (ast.With, ast.AsyncWith, ast.Try)):
            pending += node.body


def _stores(statement: Statement, name: str) -> bool:
    is_update = isinstance(statement.node, ast.AugAssign)
    return not is_update and name in own_names(statement.node, ast.Store)


def _loads(statement: Statement, name: str) -> bool:
    node = statement.node
    is_updated = isinstance(node, ast.AugAssign) and dotted(node.target) == name
    return is_updated or name in own_names(node, ast.Load)


def _spans(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


@dataclass(frozen=True)
class Clearing:
    """A statement that clears gradients in the pass that computes them."""

    statement: Statement
    late_after: ast.stmt | None
    """The forward pass, where it stands above the clearing in the same block."""
    keeps_zeros: bool
    """It fills gradients with zeros instead of dropping them."""


def clearings(program: UserProgram) -> list[Clearing]:
    """Return the calls of ``zero_grad`` in the recorded sources, in their order."""
    return [
        Clearing(
            statement,
            late_after=_forward_above(statement),
            keeps_zeros=_is_false(keyword_of(call, "set_to_none") or next(iter(call.args), None)),
        )
        for statement in program.mentioning("zero_grad")
        if (call := _call(statement.node, "zero_grad")) is not None
    ]


def never_clears(program: UserProgram) -> Statement | None:
    """Return the backward pass of a program that clears gradients nowhere.

    None where the sources clear them in some way, or leave the backward pass to a library.
    """
    if any(map(program.mentioning, ("zero_grad", "grad", "optimizer_zero_grad"))):
        return None
    in_loop = (s for s in program.mentioning("backward") if s.loops or s.scope.kind == "function")
    return next((s for s in in_loop if _call(s.node, "backward") is not None), None)


def freezing(program: UserProgram) -> Statement | None:
    """Return the statement that switches parameters' gradients off, None without one."""
    for statement in program.mentioning("requires_grad_"):
        call = _call(statement.node, "requires_grad_")
        if call is not None and _is_false(next(iter(call.args), None)):
            return statement
    for statement in program.mentioning("requires_grad"):
        if isinstance(statement.node, ast.Assign) and _is_false(statement.node.value):
            return statement
    return None


def _forward_above(statement: Statement) -> ast.stmt | None:
    """Return where the forward pass begins, if that is above a clearing in the same block.

    The forward pass is what computes the argument or receiver of ``backward``, which must follow in
    the block: gathering gradients over several passes looks different, its clearing is conditional.
    """
    at = next(i for i, node in enumerate(statement.block) if node is statement.node)
    following = (_call(node, "backward") for node in statement.block[at + 1 :])
    wanted = names_in(next(filter(None, following), None), ast.Load)
    first = None
    for node in reversed(statement.block[:at]):
        if wanted & names_in(node, ast.Store):
            first = node
            wanted |= names_in(node, ast.Load)
    return first


def _call(statement: ast.stmt, method: str) -> ast.Call | None:
    for call in calls_in(statement):
        if isinstance(call.func, ast.Attribute) and call.func.attr == method:
            return call
    return None


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
