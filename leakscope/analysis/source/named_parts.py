"""The statements by which an object gives itself parts under names that are made as it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leakscope.analysis.source.program import Program, Statement, own_nodes
from leakscope.model.census import CensusRow

_NAMERS = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})
"""Methods of modules that give what they are handed the name that comes first."""
_RECEIVER = "self"


def statements_that_name_parts(
    program: Program, row: CensusRow
) -> Iterator[tuple[Statement, ast.Call]]:
    """Yield the calls in methods of the object's class that add to it what has no fixed name.

    A name that is written out is the same at each call: what it held before is replaced.
    """
    classes = program.classes.get(row.type.rpartition(".")[2], [])
    for statement in program.mentioning(_RECEIVER) if classes else ():
        if statement.scope.receiver != _RECEIVER or statement.scope.parent not in classes:
            continue
        for node in own_nodes(statement.node):
            if isinstance(node, ast.Call) and _names_a_part(node):
                yield statement, node


def is_named_anew(method: str, call: ast.Call) -> bool:
    """Return whether a module's method gives it a part under a name that is made as it runs."""
    return method in _NAMERS and bool(call.args) and not isinstance(call.args[0], ast.Constant)


def _names_a_part(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute):
        given, is_namer = [function.value, *call.args], function.attr in _NAMERS
    else:
        given, is_namer = call.args, isinstance(function, ast.Name) and function.id == "setattr"
    return (
        is_namer
        and len(given) > 1
        and isinstance(given[0], ast.Name)
        and given[0].id == _RECEIVER
        and not isinstance(given[1], ast.Constant)
    )
