"""Where the program calls one of its own functions, and what it hands over there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leakscope.analysis.source import SourceIndex
from leakscope.analysis.source.program import Scope, Statement, own_nodes


def calls_of(sources: SourceIndex, function: Scope) -> Iterator[tuple[Statement, ast.Call]]:
    """Yield the calls that may run a function of the program, in its order."""
    for statement in sources.program.mentioning(function.name):
        for node in own_nodes(statement.node):
            if not isinstance(node, ast.Call):
                continue
            if function in sources.types.called_functions(node.func, statement.scope):
                yield statement, node


def argument_of(call: ast.Call, function: Scope, parameter: str) -> ast.expr | None:
    """Return what a call passes for a parameter, None where it leaves it to the default."""
    for keyword in call.keywords:
        if keyword.arg == parameter:
            return keyword.value
    if parameter not in function.params:
        return None
    is_bound = bool(function.receiver) and (
        isinstance(call.func, ast.Attribute) or function.name == "__init__"
    )
    place = function.params.index(parameter) - is_bound
    return call.args[place] if 0 <= place < len(call.args) else None
