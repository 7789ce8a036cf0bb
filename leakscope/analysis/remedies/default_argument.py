"""A mutable default argument that lives as long as its function: ``def f(x, out=[])``.

Recognises a list, dict or set as the default of the parameter that grows. Silent for parameters
that are plainly meant to remember (``_cache``, ``memo``): those are a cache without a bound.
"""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.path import parse_path
from leakscope.analysis.source.program import FunctionNode, Scope
from leakscope.model.report import Remedy

_MEANT = re.compile(r"cache|memo|seen|registry", re.IGNORECASE)


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
