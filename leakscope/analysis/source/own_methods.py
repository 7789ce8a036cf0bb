"""Containers of a class of the user's own: the methods by which such a container fills itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leakscope.analysis.source.mutations import FEEDERS
from leakscope.analysis.source.program import Scope, own_nodes
from leakscope.analysis.source.references import References, is_super
from leakscope.analysis.source.types import Types
from leakscope.model.census import CensusRow

_CONTAINERS = frozenset({"list", "dict", "set", "deque", "queue"})


def own_methods(references: References, row: CensusRow) -> list[Scope]:
    """Return the methods of the container's class that are run on this very container.

    Those that the program calls on it, those that the interpreter does by itself
    (``__missing__``), and what these call in turn; all where no call of one is found. One called
    like what feeds the built-in containers is left out: each call of it is a feeding line.
    """
    classes = references.program.classes.get(row.type.rpartition(".")[2], [])
    if row.kind not in _CONTAINERS or "." not in row.type or len(classes) != 1:
        return []
    bases = references.types.ancestors(classes[0]) - {classes[0]}
    methods = {**_methods(*bases), **_methods(classes[0])}
    called = _taken_from(references, methods)
    by_itself = {name for name in methods if name.startswith("__")}
    pending = [methods[name] for name in (called | by_itself if called else methods)]
    reached: list[Scope] = []
    while pending:
        method = pending.pop()
        if method not in reached:
            reached.append(method)
            pending += _called_by(method, methods, references.types)
    return reached


def _methods(*classes: Scope) -> dict[str, Scope]:
    """Return the methods of classes by their names, without those called like feeding ones."""
    found = (method for cls in classes for method in cls.children if method.receiver)
    return {method.name: method for method in found if method.name not in FEEDERS}


def _taken_from(references: References, methods: dict[str, Scope]) -> set[str]:
    """Return the names of the methods that the program takes from the container."""
    return {
        name
        for name in methods
        for statement in references.program.mentioning(name)
        for node in own_nodes(statement.node)
        if isinstance(node, ast.Attribute)
        and node.attr == name
        and () in references.steps_from(node.value, statement.scope)
    }


def _called_by(method: Scope, methods: dict[str, Scope], types: Types) -> Iterator[Scope]:
    above = types.ancestors(method.parent) - {method.parent} if method.parent else ()
    for node in ast.walk(method.node):
        if not isinstance(node, ast.Attribute):
            continue
        is_own = isinstance(node.value, ast.Name) and node.value.id == method.receiver
        source = methods if is_own else _methods(*above) if is_super(node.value) else {}
        if node.attr in source:
            yield source[node.attr]
