"""Variables that stand for something in a container, from where it is filled too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from leakscope.analysis.source.program import Scope, Statement
from leakscope.analysis.source.references import References

_GETTERS = frozenset({"setdefault", "get", "__getitem__"})
_PARTS = {"values": 0, "items": 1}
"""Methods to loop over, and which part of what they yield is in the container."""

Names = set[tuple[Scope | None, str]]
"""Variables, each with the scope that it lives in."""


def names_inside(references: References, statements: Iterable[Statement]) -> Names:
    """Return the variables that statements bind to what a container holds.

    ``entry = results[name]``, ``rows = results.setdefault(name, [])``, ``for rows in
    results.values()``; what is taken from such a variable is no further followed.
    """
    return {
        (statement.scope.resolve(name), name)
        for statement in statements
        for target, value in _bound(statement.node)
        if _refers(references, value, statement.scope)
        for name in [target.id]
    }


def _bound(node: ast.stmt) -> Iterator[tuple[ast.Name, ast.expr]]:
    """Yield each variable that is bound to an item, and the expression of what it is taken from."""
    if isinstance(node, ast.Assign):
        source = _source(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name) and source is not None:
                yield target, source
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        target, source = node.target, node.iter
        method = source.func if isinstance(source, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in _PARTS:
            source = method.value
            if _PARTS[method.attr] and isinstance(target, ast.Tuple) and len(target.elts) == 2:
                target = target.elts[1]
        if isinstance(target, ast.Name):
            yield target, source


def _source(value: ast.expr) -> ast.expr | None:
    """Return what an item is taken from; None where the value is no item."""
    if isinstance(value, ast.Subscript):
        return value.value
    function = value.func if isinstance(value, ast.Call) else None
    if isinstance(function, ast.Attribute) and function.attr in _GETTERS:
        return function.value
    return None


def _refers(references: References, value: ast.expr, scope: Scope) -> bool:
    """Return whether an expression is the container, or an item of an item of it."""
    source: ast.expr | None = value
    while source is not None:
        if () in references.steps_from(source, scope):
            return True
        source = _source(source)
    return False
