"""A dictionary used as a cache without a bound: ``if key not in cache: cache[key] = …``.

Recognises item assignment guarded by a look-up of the same dictionary. Silent for a record of
results, which somebody reads as a whole (loops over it, its length, ``items()``), and for a
dictionary that is emptied somewhere.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import reads, releases
from leakscope.model.report import Remedy

_BOUND = 128
_WHOLE = frozenset({"items", "values", "keys", "copy"})
_EVICTING = frozenset({"clear", "pop", "popitem"})


def recognise(case: Case) -> Remedy | None:
    """Return how to bound the dictionary."""
    node = case.node
    if case.row.kind != "dict" or not isinstance(node, ast.Assign) or not _is_looked_up(case):
        return None
    target = node.targets[0]
    if not isinstance(target, ast.Subscript) or _is_emptied(case):
        return None
    name = ast.unparse(target.value)
    diff = None
    if not _read_as_a_whole(case):
        evict = f"    {name}.pop(next(iter({name})))"
        edits = case.edits().insert_after(node, f"if len({name}) > {_BOUND}:", evict)
        diff = edits.diff()
    return case.remedy(
        f"Bound {case.name}",
        f"{case.name} is a cache that never drops a key ({case.measure() or 'unbounded'}); "
        f"`{case.line.text if case.line else ''}` at {case.where()} adds them.",
        f"Drop the oldest key once there are more than {_BOUND} or as many as pay; "
        "functools.lru_cache(maxsize=N) on the function does it by use instead of by age.",
        case.still_reachable(),
        diff=diff,
    )


def _is_looked_up(case: Case) -> bool:
    """Whether the function that stores also asks for the key: ``in``, ``get``, ``except``."""
    if case.scope is None:
        return False
    for use in reads(case.references):
        if use.statement.scope is not case.scope:
            continue
        asked = isinstance(use.parent, ast.Compare) and any(
            isinstance(op, (ast.In, ast.NotIn)) for op in use.parent.ops
        )
        if asked or use.method in {"get", "__contains__"}:
            return True
    return False


def _is_emptied(case: Case) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in _EVICTING
        for statement in releases(case.references)
        for node in ast.walk(statement.node)
    ) or any(isinstance(s.node, ast.Delete) for s in releases(case.references))


def _read_as_a_whole(case: Case) -> bool:
    for use in reads(case.references):
        iterated = isinstance(use.parent, (ast.For, ast.comprehension))
        returned = isinstance(use.parent, ast.Return)
        if iterated or returned or use.method in _WHOLE or use.passed_to:
            return True
    return False
