"""An unbounded ``functools`` cache: ``lru_cache(maxsize=None)`` or ``cache``.

Recognises the decorator of the function that holds the results and bounds it. Silent where the
cache is bounded already (a bare ``lru_cache`` keeps 128 results).
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.program import Scope
from leakscope.analysis.source.suspects import cache_decorator, cached_function
from leakscope.analysis.source.types import dotted
from leakscope.model.report import Remedy

_BOUND = 128


def recognise(case: Case) -> Remedy | None:
    """Return how to bound the cache."""
    if case.row.capacity is not None:
        return None
    function = cached_function(case.references, case.row)
    decorator = cache_decorator(function) if function else None
    if function is None or decorator is None or not _is_unbounded(decorator):
        return None
    where = case.sources.location(function.module.file, decorator.lineno)
    written = ast.unparse(decorator)
    return case.remedy(
        f"Bound the cache of {function.name}: lru_cache(maxsize={_BOUND})",
        f"`@{written}` at {where} keeps every result of {function.name} for as long as the "
        f"program runs ({case.measure() or 'without a bound'}).",
        f"With lru_cache(maxsize={_BOUND}) the least recently used result goes first; raise the "
        f"bound until {function.name}.cache_info() shows no more hits.",
        _about_arguments(function),
        "gc.collect() can't help: the cache refers to all of it.",
        diff=_diff(case, function, decorator),
    )


def _is_unbounded(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = dotted(called).rpartition(".")[2]
    if name == "cache":
        return True
    if name != "lru_cache" or not isinstance(decorator, ast.Call):
        return False
    sizes = [*decorator.args[:1], *(k.value for k in decorator.keywords if k.arg == "maxsize")]
    return any(isinstance(size, ast.Constant) and size.value is None for size in sizes)


def _about_arguments(function: Scope) -> str:
    if function.receiver:
        return (
            f"As a method it also keeps `{function.receiver}` of each call alive: cache in an "
            "attribute of the object, or in a function of what really decides the result."
        )
    return "Arguments are kept as well, and tensors among them never hit: they compare by identity."


def _diff(case: Case, function: Scope, decorator: ast.expr) -> str | None:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    edits = case.edits(function)
    prefix = dotted(called).rpartition(".")[0]
    kept = ""
    if isinstance(decorator, ast.Call):
        typed = [k for k in decorator.keywords if k.arg == "typed"]
        kept = "".join(f", {ast.unparse(k)}" for k in typed)
    is_short = dotted(called) == "cache"
    if is_short:
        edits.insert_import("from functools import lru_cache")
    name = f"{prefix}.lru_cache" if prefix else _local_name(called)
    return edits.replace(decorator, f"{name}(maxsize={_BOUND}{kept})").diff()


def _local_name(called: ast.expr) -> str:
    return "lru_cache" if dotted(called) == "cache" else dotted(called)
