"""A mutable default argument that lives as long as its function: ``def f(x, out=[])``.

Recognises a list, dict or set as the default of the parameter that grows. Parameters that are
plainly meant to remember (``_cache``, ``memo``) are a cache without a bound, and a function that
reads what earlier calls left there would return something else if it were made anew: both are to
be bounded, and get no diff.
"""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.calls import calls_of
from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import Use, uses
from leakscope.analysis.source.mutations import FEEDERS
from leakscope.analysis.source.path import parse_path
from leakscope.analysis.source.program import FunctionNode, Scope
from leakscope.model.report import Remedy

_MEANT = re.compile(r"cache|memo|seen|registry", re.IGNORECASE)
_SHOWING = frozenset({"print", "repr", "str", "id", "type", "isinstance"})


def recognise(case: Case) -> Remedy | None:
    """Return how to make the container anew in each call."""
    found = _parameter(case)
    if found is None:
        return None
    function, name, default = found
    written = ast.unparse(default)
    where = case.sources.location(function.module.file, default.lineno)
    if _MEANT.search(name):
        return case.remedy(
            f"Bound the default argument {name} of {function.name}",
            f"`{name}={written}` at {where} is one object for all calls and serves as a cache "
            f"without a bound ({case.measure() or 'it only grows'}).",
            "Use functools.lru_cache(maxsize=N) on the function, or drop the oldest entries.",
            case.still_reachable(),
        )
    remembered = _remembered(case, function)
    if remembered is not None:
        read = remembered.statement
        read_at = case.sources.location(read.scope.module.file, read.line)
        return case.remedy(
            f"Bound what {function.name} remembers in {name}",
            f"`{name}={written}` at {where} is one object for all calls that don't pass {name}, "
            f"and it only grows. {case.opening()}",
            f"{read_at} reads what earlier calls left there, so making it anew in each call would "
            "lose that and change what the program computes. Drop the entries that aren't read "
            "any more, or keep the state in an object that its user makes, empties and lets go.",
            case.still_reachable(),
        )
    return case.remedy(
        f"Make {name} anew in each call of {function.name}",
        f"`{name}={written}` at {where} is evaluated once, so all calls that don't pass {name} "
        f"share one object, and it only grows ({case.measure() or 'no bound'}).",
        f"Use None as the default and make a new {type(default).__name__.lower()} in the body.",
        case.still_reachable(),
        diff=_diff(case, function, name, default),
    )


def _parameter(case: Case) -> tuple[Scope, str, ast.expr] | None:
    steps = parse_path(case.row.path).steps
    by_path = any(step.kind == "default" for step in steps)
    for place, rest in case.references.chain:
        function = place.scope
        if function is None or place.name not in function.params or (rest and not by_path):
            continue
        default = function.bindings[place.name][0].value
        if isinstance(default, (ast.List, ast.Dict, ast.Set)) or _is_empty_call(default):
            assert default is not None
            return function, place.name, default
    return None


def _remembered(case: Case, function: Scope) -> Use | None:
    """Return where contents that earlier calls may have left are read, None where nowhere."""
    for use in uses(case.references):
        is_harmless = use.is_stored or use.passed_to in _SHOWING
        if not (is_harmless or _only_feeds(case, use) or _hands_back(case, use)):
            return use
    return None


def _only_feeds(case: Case, use: Use) -> bool:
    """Whether something is put in, and what is there already has no part in it."""
    statement = use.statement.node
    if isinstance(use.parent, ast.Subscript):
        stored = isinstance(use.parent.ctx, ast.Store)
        return stored and not isinstance(statement, ast.AugAssign)
    if use.method == "setdefault":
        above = use.parents[2:3]
        return any(isinstance(p, ast.Attribute) and p.attr in FEEDERS for p in above)
    return use.feeds or _is_handed_to_its_own(case, use)


def _is_handed_to_its_own(case: Case, use: Use) -> bool:
    """Whether it is an argument of a function whose uses of it are looked at as well."""
    return any(
        isinstance(parent, ast.Call)
        and bool(case.sources.types.called_functions(parent.func, use.statement.scope))
        for parent in use.parents[:2]
    )


def _hands_back(case: Case, use: Use) -> bool:
    """Whether the container is returned, or its length to callers that have no use for it."""
    if not isinstance(use.statement.node, ast.Return):
        return False
    if isinstance(use.parent, ast.Return):
        return True
    return use.passed_to == "len" and all(
        isinstance(statement.node, ast.Expr) and statement.node.value is call
        for statement, call in calls_of(case.sources, use.statement.scope)
    )


def _is_empty_call(node: ast.expr | None) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"list", "dict", "set", "deque", "defaultdict"}
    )


def _diff(case: Case, function: Scope, name: str, default: ast.expr) -> str | None:
    node = function.node
    if not isinstance(node, FunctionNode) or node.body[0].lineno == node.lineno:
        return None
    edits = case.edits(function)
    written = edits.source_of(default)
    edits.replace(default, "None")
    lines = (f"if {name} is None:", f"    {name} = {written}")
    body = node.body
    if ast.get_docstring(node) is None:
        return edits.insert_before(body[0], *lines).diff()
    return edits.insert_after(body[0], *lines).diff()
