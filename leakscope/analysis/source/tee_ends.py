"""The statements that read the other ends of an ``itertools.tee``: what they read, this one keeps.

``self.look, self.stream = itertools.tee(stream)``: each item that ``next(self.stream)`` or a loop
over it takes stays for ``self.look`` (CPython's ``Modules/itertoolsmodule.c``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leakscope.analysis.source.program import COMPREHENSIONS, Scope, Statement, own_nodes
from leakscope.analysis.source.references import References
from leakscope.analysis.source.types import dotted
from leakscope.model.census import CensusRow

TEE = "itertools._tee"
"""The type of an end."""


def reading_the_other_ends(
    references: References, row: CensusRow
) -> Iterator[tuple[Statement, ast.AST]]:
    """Yield the statements that take items from the ends made beside this one."""
    if row.type != TEE:
        return
    for made in references.program.mentioning("tee"):
        for other in _made_beside(references, made):
            name = other.attr if isinstance(other, ast.Attribute) else ast.unparse(other)
            for statement in references.program.mentioning(name):
                if statement is not made and _is_same(other, made.scope, statement.scope):
                    yield from [(statement, node) for node in _takes_from(other, statement)]


def _made_beside(references: References, made: Statement) -> list[ast.expr]:
    """Return the other ends, where a statement makes this one among several."""
    node = made.node
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
        return []
    target = node.targets[0]
    is_tee = dotted(node.value.func).rpartition(".")[2] == "tee"
    if not is_tee or not isinstance(target, (ast.Tuple, ast.List)):
        return []
    mine = [end for end in target.elts if () in references.steps_from(end, made.scope)]
    return [end for end in target.elts if mine and end not in mine]


def _is_same(end: ast.expr, made_in: Scope, read_in: Scope) -> bool:
    """Return whether an expression means the same where an end is made and where it is read."""
    if isinstance(end, ast.Name):
        return made_in.home(end.id) is read_in.resolve(end.id)
    mine = made_in.enclosing_class()
    return mine is not None and mine is read_in.enclosing_class()


def _takes_from(end: ast.expr, statement: Statement) -> Iterator[ast.AST]:
    """Yield the loops over an end, and the calls of ``next``, in a statement."""
    written = ast.unparse(end)
    for node in own_nodes(statement.node):
        taken: list[ast.expr] = []
        if isinstance(node, (ast.For, ast.AsyncFor)):
            taken = [node.iter]
        elif isinstance(node, COMPREHENSIONS):
            taken = [part.iter for part in node.generators]
        elif isinstance(node, ast.Call) and dotted(node.func) == "next":
            taken = node.args[:1]
        if any(ast.unparse(part) == written for one in taken for part in ast.walk(one)):
            yield node
