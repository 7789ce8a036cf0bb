"""What the loggers of a program are called.

Loggers are told apart by the names that the sources give them; where those of one can't be told,
nothing is said about it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from leakscope.analysis.source.program import Binding, Program, Scope, own_nodes
from leakscope.analysis.source.types import Types, imported_name

Names = frozenset[str]
"""What a logger may be called, empty where nothing tells; the root logger is called nothing."""

ROOT: Names = frozenset({""})
UNKNOWN: Names = frozenset()
_MAX_DEPTH = 6


class Loggers:
    """Tells the names of loggers, and which of them keep their records to themselves."""

    def __init__(self, program: Program, types: Types) -> None:
        self._program = program
        self._types = types
        self.silent = self._not_propagating()
        """Names of loggers whose records don't go to the handlers of their parents."""

    def names_of(self, expr: ast.expr | None, scope: Scope, depth: int = 0) -> Names:
        """Return the names that the logger may have which an expression stands for."""
        if depth > _MAX_DEPTH:
            return UNKNOWN
        if isinstance(expr, ast.Call):
            return self._of_call(expr, scope, depth)
        if isinstance(expr, (ast.Name, ast.Attribute)):
            if imported_name(expr, scope) in {"logging", "logging.root"}:
                return ROOT
            if isinstance(expr, ast.Attribute):
                return self._of_attribute(expr, scope, depth)
            home = scope.resolve(expr.id)
            return self._of_name(expr.id, home, depth) if home is not None else UNKNOWN
        return UNKNOWN

    def of_bindings(self, bindings: list[Binding], depth: int = 0) -> Names:
        """Return what any of the bindings may give; nothing if that of one can't be told."""
        found = [self.names_of(b.value, b.scope, depth + 1) for b in bindings if b.how == "assign"]
        is_known = len(found) == len(bindings) and all(found)
        return frozenset().union(*found) if is_known else UNKNOWN

    def _of_attribute(self, expr: ast.Attribute, scope: Scope, depth: int) -> Names:
        module = self._types.module_of(expr.value, scope)
        if module is not None:
            return self._of_name(expr.attr, module, depth)
        bindings: list[Binding] = []
        for owner in self._types.of(expr.value, scope):
            for cls in self._types.family(owner):
                bindings += cls.attributes.get(expr.attr, []) + cls.bindings.get(expr.attr, [])
        return self.of_bindings(bindings, depth)

    def _of_name(self, name: str, home: Scope, depth: int) -> Names:
        if name in home.module.imports:
            module, attribute = home.module.imports[name]
            source = self._program.module_named(module, importer=home.root) if attribute else None
            if source is None or source is home.root:
                return UNKNOWN
            return self._of_name(attribute, source, depth + 1) if depth < _MAX_DEPTH else UNKNOWN
        return self.of_bindings(home.bindings.get(name, []), depth)

    def _of_call(self, call: ast.Call, scope: Scope, depth: int) -> Names:
        function = call.func
        if imported_name(function, scope) == "logging.getLogger":
            return _written_name(call.args[0], scope) if call.args else ROOT
        if isinstance(function, ast.Attribute) and function.attr == "getChild" and call.args:
            parents = self.names_of(function.value, scope, depth + 1)
            ends = _written_name(call.args[0], scope)
            return frozenset(f"{parent}.{end}".lstrip(".") for parent in parents for end in ends)
        return UNKNOWN

    def _not_propagating(self) -> Names:
        found: set[str] = set()
        for statement in self._program.mentioning("propagate"):
            node = statement.node
            if isinstance(node, ast.Assign) and _is_false(node.value):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and target.attr == "propagate":
                        found |= self.names_of(target.value, statement.scope)
            for name, entry in named_entries(own_nodes(node)):
                if _is_false(entry.get("propagate")):
                    found.add(name)
        return frozenset(found)


def named_entries(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, dict[str, ast.expr]]]:
    """Yield what dictionaries say of each name, such as those that ``dictConfig`` is given."""
    for node in nodes:
        for name, entry in _texts(node).items():
            if isinstance(entry, ast.Dict):
                yield ("" if name == "root" else name), _texts(entry)


def _texts(node: ast.AST) -> dict[str, ast.expr]:
    """Return the values that a dictionary is written out with, by the texts they are under."""
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value in (False, 0)


def _written_name(expr: ast.expr, scope: Scope) -> Names:
    if isinstance(expr, ast.Constant):
        return ROOT if expr.value in (None, "", "root") else frozenset({str(expr.value)})
    if isinstance(expr, ast.Name) and expr.id == "__name__":
        return frozenset(scope.module.names)
    return UNKNOWN
