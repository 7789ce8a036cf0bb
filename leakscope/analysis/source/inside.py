"""Variables and calls that stand for something in a container, from where it is filled too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from leakscope.analysis.source.program import Binding, Scope, Statement
from leakscope.analysis.source.references import References
from leakscope.analysis.source.types import dotted

_GETTERS = frozenset({"setdefault", "get", "__getitem__"})
_PARTS = {"values": 0, "items": 1}
"""Methods to loop over, and which part of what they yield is in the container."""

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)

Names = set[tuple[Scope | None, str]]
"""Variables, each with the scope that it lives in."""


class Inside:
    """Tells which variables and which calls stand for something in the container.

    ``entry = results[name]``, ``rows = results.setdefault(name, [])``, ``for rows in
    results.values()``, what is taken from such a variable by keys, and ``rows = gallery.page(3)``
    where every return of that method gives such a thing.
    """

    def __init__(self, references: References, statements: Iterable[Statement]) -> None:
        self._references = references
        self.names: Names = set()
        self.functions: list[Scope] = []
        """Functions of which every return is something in the container."""
        pending = list(statements)
        while pending:
            names, functions = set(self.names), len(self.functions)
            self._bind(pending)
            self._find_functions(pending)
            new = {name for _, name in self.names - names}
            new |= {function.name for function in self.functions[functions:]}
            pending = [s for name in sorted(new) for s in references.program.mentioning(name)]

    def gives(self, expr: ast.expr, scope: Scope) -> bool:
        """Whether a call, or a property, gives what every return of its function is."""
        function = expr.func if isinstance(expr, ast.Call) else expr
        if not any(_last_name(function) == known.name for known in self.functions):
            return False
        called = self._references.types.called_functions(function, scope)
        is_run = isinstance(expr, ast.Call) or all(_is_property(one) for one in called)
        return is_run and bool(called) and all(one in self.functions for one in called)

    def _bind(self, statements: list[Statement]) -> None:
        for statement in statements:
            scope, node = statement.scope, statement.node
            for variable, taken in _bound(node):
                if _refers(self._references, taken, scope) or self._is_item_inside(taken, scope):
                    self.names.add((scope.resolve(variable.id), variable.id))
            if isinstance(node, ast.Assign) and self.gives(node.value, scope):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.names.add((scope.resolve(target.id), target.id))

    def _is_item_inside(self, expr: ast.expr, scope: Scope) -> bool:
        """Whether it is taken from such a variable by keys: ``block = entry["blocks"][name]``."""
        while (source := _source(expr)) is not None:
            expr = source
        return isinstance(expr, ast.Name) and (scope.resolve(expr.id), expr.id) in self.names

    def _find_functions(self, statements: list[Statement]) -> None:
        for statement in statements:
            function = statement.scope
            if isinstance(statement.node, ast.Return) and function not in self.functions:
                ends = [e.value if isinstance(e, ast.Return) else None for e in _ends(function)]
                if all(self._comes_out(value, function) for value in ends):
                    self.functions.append(function)

    def _comes_out(self, value: ast.expr | None, scope: Scope) -> bool:
        """Whether what is returned is in the container, whichever way it was come by."""
        if isinstance(value, ast.Name):
            bindings = scope.bindings.get(value.id, [])
            return bool(bindings) and all(self._is_bound_inside(b) for b in bindings)
        if value is None or (isinstance(value, ast.Call) and _has_default(value)):
            return False
        source = _source(value)
        is_item = source is not None and _refers(self._references, source, scope)
        return is_item or self.gives(value, scope)

    def _is_bound_inside(self, binding: Binding) -> bool:
        node = binding.statement.node if binding.statement else None
        if not isinstance(node, ast.Assign):
            return False
        values = [t for t in node.targets if isinstance(t, ast.Subscript)] + [node.value]
        return any(
            not isinstance(value, ast.Name) and self._comes_out(value, binding.scope)
            for value in values
        )


def _ends(function: Scope) -> Iterator[ast.AST]:
    """Yield what a function returns or yields by, without functions in it."""
    pending = list(ast.iter_child_nodes(function.node))
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)):
            yield node
        if not isinstance(node, _NESTED):
            pending.extend(ast.iter_child_nodes(node))


def _has_default(call: ast.Call) -> bool:
    """``results.get(name, [])`` may give what isn't in there."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "get" and len(call.args) > 1


def _is_property(function: Scope) -> bool:
    decorators = getattr(function.node, "decorator_list", [])
    return any(_last_name(one) in {"property", "cached_property"} for one in decorators)


def _last_name(expr: ast.expr) -> str:
    return expr.attr if isinstance(expr, ast.Attribute) else dotted(expr)


def _bound(node: ast.stmt) -> Iterator[tuple[ast.Name, ast.expr]]:
    """Yield each variable that is bound to an item, and the expression of what it is taken from."""
    if isinstance(node, ast.Assign):
        written = [target.value for target in node.targets if isinstance(target, ast.Subscript)]
        source = _source(node.value)
        for target in node.targets:
            for taken in [*written, *([source] if source is not None else [])]:
                if isinstance(target, ast.Name):
                    yield target, taken
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from _looped(node.target, node.iter)


def _looped(target: ast.expr, iterated: ast.expr) -> Iterator[tuple[ast.Name, ast.expr]]:
    method = iterated.func if isinstance(iterated, ast.Call) else None
    if isinstance(method, ast.Attribute) and method.attr in _PARTS:
        iterated = method.value
        if _PARTS[method.attr] and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            target = target.elts[1]
    if isinstance(target, ast.Name):
        yield target, iterated


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
