"""What a program does with a container apart from feeding it: the ground for safe diffs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from leakscope.analysis.source.mutations import FEEDERS
from leakscope.analysis.source.program import Program, Scope, Statement, own_nodes
from leakscope.analysis.source.references import References
from leakscope.analysis.source.types import dotted

_REFERRING = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_RELEASING = frozenset({"clear", "pop", "popleft", "popitem", "remove", "reset", "get"})


@dataclass(frozen=True)
class Use:
    """One expression that refers to the container, and what it stands in, innermost first."""

    statement: Statement
    node: ast.expr
    parents: tuple[ast.AST, ...]

    @property
    def parent(self) -> ast.AST:
        """What the expression stands in directly."""
        return self.parents[0]

    @property
    def method(self) -> str:
        """The attribute that is read from it, empty if none is."""
        return self.parent.attr if isinstance(self.parent, ast.Attribute) else ""

    @property
    def is_stored(self) -> bool:
        """Whether it is the target of an assignment, or of ``del``."""
        return isinstance(getattr(self.node, "ctx", None), (ast.Store, ast.Del))

    @property
    def feeds(self) -> bool:
        """Whether something is put into it here."""
        item_store = isinstance(self.parent, ast.Subscript) and isinstance(
            self.parent.ctx, ast.Store
        )
        return self.method in FEEDERS or item_store or self.is_stored

    @property
    def passed_to(self) -> str:
        """Dotted name of the function that it is an argument of, empty if of none."""
        for parent in self.parents[:2]:
            if isinstance(parent, ast.Call) and self.node is not parent.func:
                is_function = dotted(parent.func).startswith(dotted(self.node) + ".")
                return "" if is_function else (dotted(parent.func) or _tail(parent.func))
        return ""


def uses(references: References) -> list[Use]:
    """Return every expression that refers to the container itself, in order."""
    seen: dict[int, Statement] = {}
    for name in references.names:
        for statement in references.program.mentioning(name):
            seen[id(statement)] = statement
    found = []
    for statement in sorted(seen.values(), key=lambda s: (s.scope.module.file, s.line)):
        for node, parents in _with_parents(statement.node, ()):
            if not isinstance(node, _REFERRING) or _is_method(node, parents):
                continue
            if () in references.steps_from(node, statement.scope):
                found.append(Use(statement, node, parents))
    return found


def _is_method(node: ast.expr, parents: tuple[ast.AST, ...]) -> bool:
    """Whether an attribute is called: ``outputs.mean(0)`` is no use of what is called ``mean``."""
    called = parents[0].func if parents and isinstance(parents[0], ast.Call) else None
    return isinstance(node, ast.Attribute) and called is node


def reads(references: References) -> list[Use]:
    """Return the uses that neither feed nor replace the container."""
    return [use for use in uses(references) if not use.feeds]


def releases(references: References) -> list[Statement]:
    """Return the statements that empty the container or give it up."""
    found = []
    for use in uses(references):
        deleted = isinstance(use.statement.node, ast.Delete)
        if use.method in _RELEASING or deleted or _is_reset(use):
            found.append(use.statement)
    return found


def _is_reset(use: Use) -> bool:
    """Whether an empty value is assigned again, in a function that doesn't build the object."""
    node = use.statement.node
    if not use.is_stored or not isinstance(node, ast.Assign) or use.statement.scope.kind == "class":
        return False
    again = use.statement.scope.name not in {"__init__", "__post_init__"}
    is_attribute = isinstance(use.node, ast.Attribute)
    empty = isinstance(node.value, (ast.List, ast.Dict, ast.Constant, ast.Call))
    return empty and ((is_attribute and again) or bool(use.statement.loops))


def goes_backward(references: References) -> bool:
    """Whether gradients are computed through what the container holds."""
    for use in uses(references):
        if _in_backward(use.parents) or _name_goes_backward(use):
            return True
    return any(
        "backward" in attributes_of_result(references.program, use.statement.scope)
        for use in reads(references)
        if isinstance(use.statement.node, ast.Return)
    )


def derived_attributes(references: References) -> set[str]:
    """Return the attributes that are read from the value, or from what is made of it."""
    found: set[str] = set()
    for use in reads(references):
        found.add(use.method)
        node, scope = use.statement.node, use.statement.scope
        for parent in use.parents:
            if isinstance(parent, ast.Attribute):
                found.add(parent.attr)
        if isinstance(node, ast.Assign):
            for name in _target_names(node):
                found |= attributes_of_name(name, scope)
        elif isinstance(node, ast.Return):
            found |= attributes_of_result(references.program, scope)
    return found - {""}


def attributes_of_name(name: str, scope: Scope) -> set[str]:
    """Return the attributes read from a variable in its function."""
    return {
        node.attr
        for node in ast.walk(scope.node)
        if isinstance(node, ast.Attribute)
        and name in {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
    }


def attributes_of_result(program: Program, function: Scope) -> set[str]:
    """Return the attributes read from what callers get from a function."""
    found: set[str] = set()
    for statement in program.mentioning(function.name):
        for node, parents in _with_parents(statement.node, ()):
            if not isinstance(node, ast.Call) or _tail(node.func) != function.name:
                continue
            found |= {p.attr for p in parents if isinstance(p, ast.Attribute)}
            if isinstance(statement.node, ast.Assign):
                for name in _target_names(statement.node):
                    found |= attributes_of_name(name, statement.scope)
    return found


def _in_backward(parents: tuple[ast.AST, ...]) -> bool:
    """``total.backward()``, ``scaler.scale(total / n).backward()``, ``grad(total, …)``."""
    for parent in parents:
        if isinstance(parent, ast.Attribute) and parent.attr == "backward":
            return True
        if isinstance(parent, ast.Call) and _tail(parent.func) in {"grad", "backward"}:
            return True
    return False


def _name_goes_backward(use: Use) -> bool:
    node = use.statement.node
    if not isinstance(node, ast.Assign) or use.is_stored:
        return False
    return any(backward_called(name, use.statement.scope) for name in _target_names(node))


def backward_called(name: str, scope: Scope) -> bool:
    """Whether gradients are computed from a variable, in the function where it lives."""
    for node in ast.walk(scope.node):
        if not isinstance(node, ast.Call) or _tail(node.func) not in {"backward", "grad"}:
            continue
        mentioned = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if name in mentioned:
            return True
    return False


def _target_names(node: ast.Assign) -> set[str]:
    return {
        part.id
        for target in node.targets
        for part in own_nodes(target)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


def _with_parents(
    node: ast.AST, parents: tuple[ast.AST, ...]
) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    yield node, parents
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from _with_parents(child, (node, *parents))


def _tail(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
