"""A container that the source itself bounds: ``if len(self.items) < self.capacity:``.

Recognises a look at its length that lets nothing in above a bound, or takes something out. Offers
no diff: it is the program's own bound that says how much is kept. Silent where the bound itself is
computed anew in a loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import releases
from leakscope.analysis.source.program import Scope, Statement
from leakscope.model.report import Remedy

_LEAVING = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_TAKERS = frozenset({"clear", "pop", "popleft", "popitem", "remove"})
_BELOW, _ABOVE = (ast.Lt, ast.LtE, ast.NotEq), (ast.Gt, ast.GtE, ast.Eq)
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE,
}  # fmt: skip


@dataclass(frozen=True)
class Bound:
    """A bound that stands in the source, and the test that heeds it."""

    text: str
    test: ast.expr
    scope: Scope


def recognise(case: Case) -> Remedy | None:
    """Return which bound to lower."""
    if case.growth != "across":
        return None
    bound = _bound(case)
    if bound is None:
        return None
    where = case.sources.location(bound.scope.module.file, bound.test.lineno)
    return case.remedy(
        f"Lower {bound.text} if {case.name} takes too much",
        case.opening(),
        f"The source bounds it: `{ast.unparse(bound.test)}` at {where} lets it grow to "
        f"{bound.text} and no further.",
        "Until then it grows, as a buffer that fills; only where memory doesn't suffice for so "
        f"many is there something to change: {bound.text}, or what each item takes.",
        case.still_reachable(),
    )


def _bound(case: Case) -> Bound | None:
    """Return the bound of the likeliest feeding line."""
    statement = case.statement
    if statement is None or case.line is None or not case.line.is_direct:
        return None
    gates = list(_gates(statement))
    for test, passes in gates:
        bound = _compared(case, test, statement.scope, _BELOW if passes else _ABOVE)
        if bound is not None:
            return bound
    for emptying in filter(_takes_out, releases(case.references)):
        for test, passes in _gates(emptying):
            bound = _compared(case, test, emptying.scope, _ABOVE if passes else _BELOW)
            if bound is not None:
                return bound
    return None


def _takes_out(statement: Statement) -> bool:
    """Whether a statement takes something out, and doesn't only look it up by ``get``."""
    node = statement.node
    called = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    is_reset = isinstance(node, ast.Assign) and "get" not in called
    return is_reset or isinstance(node, ast.Delete) or bool(called & _TAKERS)


def _gates(statement: Statement) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the tests that a statement stands behind, and whether each must hold for it to run."""
    block = statement.block
    for node in ast.walk(statement.scope.node):
        if isinstance(node, (ast.If, ast.While)) and node.body is block:
            yield node.test, True
        elif isinstance(node, ast.If) and node.orelse is block:
            yield node.test, False
    for earlier in block:
        if earlier is statement.node:
            return
        if isinstance(earlier, ast.If) and isinstance(earlier.body[-1], _LEAVING):
            yield earlier.test, False


def _compared(
    case: Case, test: ast.expr, scope: Scope, wanted: tuple[type[ast.cmpop], ...]
) -> Bound | None:
    """Return what the container's length is compared with in this direction."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, operator, right = test.left, type(test.ops[0]), test.comparators[0]
    if _is_length(case, right, scope):
        left, operator, right = right, _MIRRORED.get(operator, operator), left
    if operator not in wanted or not _is_length(case, left, scope):
        return None
    if not _stays(right, scope) or _is_raised(case, right):
        return None
    return Bound(ast.unparse(right), test, scope)


def _is_length(case: Case, node: ast.expr, scope: Scope) -> bool:
    """Whether an expression is the container's length: by ``__len__`` of what owns it, too."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "len" or len(node.args) != 1:
        return False
    measured = node.args[0]
    if () in case.references.steps_from(measured, scope):
        return True
    owner = scope.enclosing_class()
    if not isinstance(measured, ast.Name) or measured.id != scope.receiver or owner is None:
        return False
    return any(
        isinstance(part, ast.Return) and part.value and _is_length(case, part.value, method)
        for method in owner.children
        if method.name == "__len__"
        for part in ast.walk(method.node)
    )


def _is_raised(case: Case, bound: ast.expr) -> bool:
    """Whether an attribute in the bound is changed in place somewhere: ``self.capacity *= 2``."""
    names = {part.attr for part in ast.walk(bound) if isinstance(part, ast.Attribute)}
    return any(
        isinstance(statement.node, ast.AugAssign)
        and isinstance(statement.node.target, ast.Attribute)
        and statement.node.target.attr == name
        for name in names
        for statement in case.sources.program.mentioning(name)
    )


def _stays(node: ast.expr, scope: Scope) -> bool:
    """Whether an expression is a bound: a number above one, or a name that is bound once."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and node.value > 1
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name)
    if isinstance(node, ast.BinOp):
        return any(_stays(side, scope) for side in (node.left, node.right)) and all(
            isinstance(side, ast.Constant) or _stays(side, scope)
            for side in (node.left, node.right)
        )
    home = scope.resolve(node.id) if isinstance(node, ast.Name) else None
    if home is None or not isinstance(node, ast.Name):
        return False
    made = home.bindings.get(node.id, [])
    return len(made) == 1 and made[0].how in {"assign", "param", "import"}
