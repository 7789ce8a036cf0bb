"""Where a training loop clears its gradients, and how."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from leakscope.analysis.source.program import Program, Statement, own_nodes


@dataclass(frozen=True)
class Clearing:
    """A statement that clears gradients in the pass that computes them."""

    statement: Statement
    late_after: ast.stmt | None
    """The forward pass, where it stands above the clearing in the same block."""
    keeps_zeros: bool
    """It fills gradients with zeros instead of dropping them."""


def clearings(program: Program) -> list[Clearing]:
    """Return the calls of ``zero_grad`` in the recorded sources, in their order."""
    found = []
    for statement in program.mentioning("zero_grad"):
        call = _call(statement.node, "zero_grad")
        if call is not None:
            late = _forward_above(statement)
            found.append(Clearing(statement, late, keeps_zeros=_keeps_zeros(call)))
    return found


def never_clears(program: Program) -> Statement | None:
    """Return the backward pass of a program that clears gradients nowhere.

    None where the sources clear them in some way, or leave the backward pass to a library.
    """
    if any(program.mentioning(name) for name in ("zero_grad", "grad", "optimizer_zero_grad")):
        return None
    backward = [s for s in program.mentioning("backward") if _call(s.node, "backward") is not None]
    in_loop = [s for s in backward if s.loops or s.scope.kind == "function"]
    return in_loop[0] if in_loop else None


def freezing(program: Program) -> Statement | None:
    """Return the statement that switches parameters' gradients off, None without one."""
    for statement in program.mentioning("requires_grad_"):
        if (call := _call(statement.node, "requires_grad_")) and _first_is(call, False):
            return statement
    for statement in program.mentioning("requires_grad"):
        node = statement.node
        if isinstance(node, ast.Assign) and _is_false(node.value):
            return statement
    return None


def _forward_above(statement: Statement) -> ast.stmt | None:
    """Return where the forward pass begins, if that is above a clearing in the same block.

    The forward pass is what computes the argument or receiver of ``backward``, which must follow in
    the block: gathering gradients over several passes looks different, its clearing is conditional.
    """
    at = next(i for i, node in enumerate(statement.block) if node is statement.node)
    following = (_call(node, "backward") for node in statement.block[at + 1 :])
    backward = next((call for call in following if call is not None), None)
    wanted = _names(backward, ast.Load) if backward is not None else set()
    first = None
    for node in reversed(statement.block[:at]):
        if wanted & _names(node, ast.Store):
            first = node
            wanted |= _names(node, ast.Load)
    return first


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    found = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in found if isinstance(n.ctx, context)}


def _call(statement: ast.stmt, method: str) -> ast.Call | None:
    for node in own_nodes(statement):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == method:
            return node
    return None


def _keeps_zeros(call: ast.Call) -> bool:
    named = [k.value for k in call.keywords if k.arg == "set_to_none"]
    return _is_false(named[0]) if named else _first_is(call, False)


def _first_is(call: ast.Call, value: bool) -> bool:
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and first.value is value


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
