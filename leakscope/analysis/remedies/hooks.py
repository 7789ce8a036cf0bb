"""Hooks registered again and again: ``model.register_forward_hook(f)`` in every epoch.

Recognises a ``register_*hook`` call whose handle is thrown away, on a path that runs repeatedly.
Offers a diff where the call stands in a loop whose body runs to its end, so that removing the
handle there undoes it. Silent where the handle is kept.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.program import LOOPS, Statement
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to remove the hooks."""
    statement, node = case.statement, case.node
    if statement is None or not isinstance(node, ast.Expr) or not _registers(node.value):
        return None
    return case.remedy(
        "Register the hook once, or remove it by its handle",
        f"`{case.line.text if case.line else ''}` at {case.where()} adds one more hook each time "
        "and throws the handle away, so all of them stay registered, run, and keep what they "
        "refer to.",
        "Register before the loop, or keep the handle and call handle.remove() when done.",
        case.still_reachable(),
        diff=_diff(case, statement, node),
    )


def _registers(call: ast.expr) -> bool:
    name = (
        call.func.attr
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        else ""
    )
    return name.startswith("register_") and "hook" in name


def _diff(case: Case, statement: Statement, node: ast.Expr) -> str | None:
    if not statement.loops or "handle" in _names(statement) or "handles" in _names(statement):
        return None
    inner = statement.loops[-1]
    edits = case.edits()
    call = edits.source_of(node.value)
    if _is_over_modules(inner) and len(statement.loops) > 1:
        outer = statement.loops[-2]
        if inner not in _body(outer) or node not in _body(inner) or _leaves_early(outer):
            return None
        edits.insert_before(inner, "handles = []")
        edits.replace(node.value, f"handles.append({call})")
        last = _body(outer)[-1]
        removal = ("for handle in handles:", "    handle.remove()")
        return edits.insert_after(last, *removal).diff()
    if node not in _body(inner) or _is_over_modules(inner) or _leaves_early(inner):
        return None
    edits.replace(node.value, f"handle = {call}")
    return edits.insert_after(_body(inner)[-1], "handle.remove()").diff()


def _body(loop: ast.stmt) -> list[ast.stmt]:
    return list(loop.body) if isinstance(loop, LOOPS) else []


def _is_over_modules(loop: ast.stmt) -> bool:
    """Whether a loop goes over the parts of a model rather than over epochs or batches."""
    if not isinstance(loop, ast.For):
        return False
    text = ast.unparse(loop.iter)
    return any(word in text for word in ("modules", "layers", "children", "blocks", "parameters"))


def _leaves_early(loop: ast.stmt) -> bool:
    return any(
        isinstance(node, (ast.Continue, ast.Break, ast.Return))
        for part in _body(loop)
        for node in ast.walk(part)
    )


def _names(statement: Statement) -> set[str]:
    return {n.id for n in ast.walk(statement.scope.node) if isinstance(n, ast.Name)}
