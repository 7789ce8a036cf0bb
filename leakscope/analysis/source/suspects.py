"""Feeding lines for what a library keeps behind the user's back.

Open figures hang on pyplot, hooks on modules, handlers on loggers, cached results on the decorated
function: no name of the user's leads there, but the calls that feed them are recognisable.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from leakscope.analysis.source.handlers import Handler
from leakscope.analysis.source.mutations import EXACT, SUSPECTED, Mutation
from leakscope.analysis.source.path import parse_path
from leakscope.analysis.source.program import Program, Scope, own_nodes
from leakscope.analysis.source.references import References
from leakscope.analysis.source.types import dotted, imported_name
from leakscope.model.census import CensusRow, RootKind

WARNINGS = "__warningregistry__"
"""Where a module's globals keep the texts of the warnings that it was given."""
_CACHES = frozenset({"lru_cache", "cache", "memoize", "cached"})
_LOG_RECORD = "logging.LogRecord"
_LOG_METHODS = frozenset(
    {"debug", "info", "warning", "error", "exception", "critical", "fatal", "log"}
)
_HOOK_STORE = re.compile(r"_\w+_hooks")
_FIGURE_MAKERS = frozenset({"figure", "subplots", "subplot_mosaic"})


def suspect_mutations(references: References, row: CensusRow) -> list[Mutation]:
    """Return the calls known to feed this kind of object; empty for kinds without any."""
    program = references.program
    cached = cached_function(references, row)
    if cached is not None:
        return list(_calls(program, lambda call: _calls_function(call, cached), EXACT))
    if any(held.type == _LOG_RECORD for held in row.holds):
        return _logging_calls(references, row)
    if WARNINGS in row.path:
        return list(_calls(program, _named({"warn", "warn_explicit"}), SUSPECTED))
    if row.kind == "figure" or "Gcf" in row.path:
        return list(_calls(program, _makes_figure, SUSPECTED))
    if "hooks" in row.path or "Hook" in row.type or "RemovableHandle" in row.type:
        of_kind = list(_calls(program, _named(_registering(row)), SUSPECTED))
        return of_kind or list(_calls(program, _registers_hook, SUSPECTED))
    if "_event_handlers" in row.path:
        return list(_calls(program, _named({"add_event_handler"}), SUSPECTED))
    if "handlers" in row.path or row.type.endswith("Handler"):
        return list(_calls(program, _named({"addHandler"}), SUSPECTED))
    if "param_groups" in row.path or row.kind == "optimizer":
        return list(_calls(program, _named({"add_param_group"}), SUSPECTED))
    if row.root is RootKind.LIBRARY:
        return list(_calls_into(program, row))
    return list(_entries_of_callbacks(program, row))


def keeps_hooks(row: CensusRow) -> bool:
    """Return whether a row is an attribute in which torch keeps hooks."""
    return bool(_registering(row))


def _registering(row: CensusRow) -> set[str]:
    """Return what the methods are called that put hooks into a row; none for other rows.

    Modules' backward hooks have two of them, tensors' another.
    """
    last = parse_path(row.path).steps[-1:]
    stores = [step.value for step in last if step.kind == "attr"]
    kept = {store[1:-1] for store in stores if _HOOK_STORE.fullmatch(store)}
    names = {f"register_{hook}" for hook in kept}
    if "backward_hook" in kept:
        names |= {"register_full_backward_hook", "register_hook"}
    return names


def _entries_of_callbacks(program: Program, row: CensusRow) -> Iterator[Mutation]:
    """Yield where a callback writes under the row's key: ``logs["similarity"] = table``.

    What is written to is an argument that the library hands to a method of a class derived from
    another, and the library copies it into what it keeps, under the same key.
    """
    steps = list(parse_path(row.path).steps)
    while steps and steps[-1].kind in {"any", "index"}:
        steps.pop()
    key = steps[-1].value.strip("'\"") if steps and steps[-1].kind == "key" else ""
    for statement in program.mentioning(key):
        node, method = statement.node, statement.scope
        owner = method.parent.node if method.receiver and method.parent else None
        if not isinstance(node, ast.Assign) or not getattr(owner, "bases", []):
            continue
        for target in node.targets:
            if _is_entry(target, key, method.params[1:]):
                yield Mutation(statement, target, "setitem", SUSPECTED)


def _is_entry(target: ast.expr, key: str, given: list[str]) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == key
        and isinstance(target.value, ast.Name)
        and target.value.id in given
    )


def cached_function(references: References, row: CensusRow) -> Scope | None:
    """Return the function whose results ``functools`` keeps in this row."""
    names = [place.name for place, _ in references.chain]
    path = parse_path(row.path)
    names += [step.value for step in reversed(path.steps) if step.kind == "attr"]
    for name in [*names, path.variable]:
        for function in references.program.functions.get(name, []):
            if cache_decorator(function) is not None:
                return function
    return None


def cache_decorator(function: Scope) -> ast.expr | None:
    """Return the decorator that makes a function keep its results."""
    for decorator in getattr(function.node, "decorator_list", []):
        made_by = decorator.func if isinstance(decorator, ast.Call) else decorator
        if dotted(made_by).rpartition(".")[2] in _CACHES:
            return decorator if isinstance(decorator, ast.expr) else None
    return None


def _calls(
    program: Program, matches: Callable[[ast.Call], bool], distance: float
) -> Iterator[Mutation]:
    for statement in program.statements:
        for node in own_nodes(statement.node):
            if isinstance(node, ast.Call) and matches(node):
                form = "register" if _registers_hook(node) else "call"
                yield Mutation(statement, node, form, distance)


def _calls_into(program: Program, row: CensusRow) -> list[Mutation]:
    """Return the calls of the library's class or module that has the row among its globals."""
    path = parse_path(row.path)
    named, found = f"{path.root}.{path.variable}", []
    for statement in program.statements:
        for node in own_nodes(statement.node):
            if isinstance(node, ast.Call):
                called = imported_name(node.func, statement.scope)
                if called == named or called.startswith(f"{named}."):
                    found.append(Mutation(statement, node, "call", SUSPECTED))
    return found


def _logging_calls(references: References, row: CensusRow) -> list[Mutation]:
    """Return the calls whose records come to the handler that keeps the row's; else all."""
    handler = Handler(references, row)
    written = list(_calls(references.program, _writes_log, SUSPECTED))
    return [
        mutation
        for mutation in written
        if isinstance(mutation.node, ast.Call)
        and isinstance(mutation.node.func, ast.Attribute)
        and handler.may_hear(mutation.node.func.value, mutation.statement.scope)
    ] or written


def _writes_log(call: ast.Call) -> bool:
    """Whether something is logged: by a logger, as its name says, or by ``logging`` itself."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in _LOG_METHODS:
        return False
    logger = function.value.func if isinstance(function.value, ast.Call) else function.value
    return "log" in dotted(logger).rpartition(".")[2].lower()


def _calls_function(call: ast.Call, function: Scope) -> bool:
    if isinstance(call.func, ast.Attribute):
        is_method = function.parent is not None and function.parent.kind == "class"
        return call.func.attr == function.name and (is_method or bool(dotted(call.func)))
    return isinstance(call.func, ast.Name) and call.func.id == function.name


def _makes_figure(call: ast.Call) -> bool:
    head, _, name = dotted(call.func).rpartition(".")
    return name in _FIGURE_MAKERS and not head.startswith("self")


def _registers_hook(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name.startswith("register_") and "hook" in name


def _named(names: set[str]) -> Callable[[ast.Call], bool]:
    def matches(call: ast.Call) -> bool:
        return isinstance(call.func, ast.Attribute) and call.func.attr in names

    return matches
