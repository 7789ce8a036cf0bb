"""Where the recorded sources call a function of a library."""

from __future__ import annotations

import ast

from leakscope.analysis.source.index import SourceIndex
from leakscope.analysis.source.program import own_nodes


def places_that_call(
    sources: SourceIndex, owners: set[str], functions: set[str], *, repeatedly: bool = False
) -> list[str]:
    """Return where ``owner.function(…)`` is called, as ``file:line``, each place once.

    The owner is known by its name alone: ``gc``, ``plt``; the empty one stands for no owner. Places
    that are run once can be left out.
    """
    found = [
        sources.location(statement.scope.module.file, node.lineno)
        for function in sorted(functions)
        for statement in sources.program.mentioning(function)
        if not repeatedly or sources.heat.of(statement)
        for node in own_nodes(statement.node)
        if isinstance(node, ast.Call) and _is_one_of(node.func, owners, functions)
    ]
    return list(dict.fromkeys(found))


def _is_one_of(called: ast.expr, owners: set[str], functions: set[str]) -> bool:
    if isinstance(called, ast.Name):
        return "" in owners and called.id in functions
    if not isinstance(called, ast.Attribute) or called.attr not in functions:
        return False
    owner = called.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name in owners
