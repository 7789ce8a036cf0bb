"""Figures that pyplot keeps open: ``fig, ax = plt.subplots()`` without ``plt.close``.

Recognises figures made through pyplot. Offers a diff where the figure has a name, is closed nowhere
and doesn't leave its block (returned, stored, passed to what may keep it).
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.types import dotted
from leakscope.model.report import Remedy

_MAKERS = frozenset({"figure", "subplots", "subplot_mosaic"})
_KEEPERS = frozenset({"append", "add", "put", "extend", "setdefault", "update"})


def recognise(case: Case) -> Remedy | None:
    """Return how to close the figures."""
    is_figure = case.row.kind == "figure" or "Gcf" in case.row.path
    maker = _maker(case.node)
    if not is_figure or maker is None:
        return None
    pyplot = dotted(maker.func).rpartition(".")[0]
    figure = _figure_name(case.node)
    return case.remedy(
        "Close each figure after saving it",
        f"`{case.line.text if case.line else ''}` at {case.where()} opens a figure that pyplot "
        f"keeps until it is closed ({case.measure() or 'one more each time'}).",
        f"Call {pyplot or 'plt'}.close({figure or 'fig'}) after the last use, or build it without "
        "pyplot: matplotlib.figure.Figure() is freed like any object.",
        "gc.collect() can't help: pyplot's own list refers to every open figure.",
        diff=_diff(case, pyplot, figure),
    )


def _maker(node: ast.stmt | None) -> ast.Call | None:
    value = node.value if isinstance(node, (ast.Assign, ast.Expr)) else None
    if isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] in _MAKERS:
        return value
    return None


def _figure_name(node: ast.stmt | None) -> str:
    """Return the variable that holds the figure itself."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return ""
    target = node.targets[0]
    if isinstance(target, ast.Tuple) and target.elts:
        target = target.elts[0]
    return target.id if isinstance(target, ast.Name) else ""


def _diff(case: Case, pyplot: str, figure: str) -> str | None:
    statement = case.statement
    if statement is None or not figure or not pyplot or _is_closed(statement.scope.node):
        return None
    names = _names_of(statement.node)
    block = statement.block[statement.block.index(statement.node) :]
    using = [part for part in block if names & _read(part)] or block[:1]
    if any(_escapes(part, figure) for part in using):
        return None
    return case.edits().insert_after(using[-1], f"{pyplot}.close({figure})").diff()


def _is_closed(scope: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "close" for n in ast.walk(scope))


def _names_of(node: ast.stmt) -> set[str]:
    stored = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return stored | {"plt", "pyplot"}


def _read(node: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _escapes(part: ast.stmt, figure: str) -> bool:
    """Whether a statement hands the figure on to something that may keep it."""
    for node in ast.walk(part):
        if isinstance(node, (ast.Return, ast.Yield, ast.Break, ast.Continue)):
            return True
        if isinstance(node, ast.Assign) and _is_name(node.value, figure):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = any(_is_name(argument, figure) for argument in node.args)
            if given and node.func.attr in _KEEPERS:
                return True
    return False


def _is_name(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
