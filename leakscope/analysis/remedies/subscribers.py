"""Callables put into a list of listeners again and again: ``bus.on("end", lambda: …)``.

Recognises containers that hold callables which the program calls one after another, or that are
called listeners, callbacks and the like. Offers no diff: whether to subscribe once or to
unsubscribe is the caller's choice. Silent for callables that are kept without being called there.
"""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.calls import calls_of
from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import reads
from leakscope.model.report import Remedy

_CALLABLES = frozenset(
    {"function", "method", "partial", "partialmethod", "builtin_function_or_method", "lambda"}
)
_WORDS = re.compile(r"listener|callback|subscriber|observer|handler|hook", re.IGNORECASE)
_KINDS = frozenset({"list", "dict", "set", "deque", "tuple"})
_ORDERERS = frozenset({"list", "tuple", "sorted", "reversed", "iter", "enumerate"})


def recognise(case: Case) -> Remedy | None:
    """Return how to keep the number of subscribers constant."""
    if case.growth != "across" or case.row.kind not in _KINDS:
        return None
    called_at, is_named = _called_at(case), bool(_WORDS.search(case.name))
    if not (called_at or is_named) or not _holds_callables(case, bool(called_at) and is_named):
        return None
    subscribing = _subscribing(case)
    return case.remedy(
        f"Subscribe to {case.name} once, or unsubscribe",
        case.opening(),
        "It holds callables, and each keeps what it was made with: arguments, closure, object.",
        f"{called_at} calls all of them." if called_at else "",
        f"{subscribing} subscribes one more each time." if subscribing else "",
        "Subscribe before the loop, or take the callable out again once it was called, and let it "
        "keep numbers rather than tensors. Keeping only the last entries would drop subscribers "
        "that others count on.",
        case.still_reachable(),
    )


def _holds_callables(case: Case, may_be_wrapped: bool) -> bool:
    """Whether most of what the census saw in it are functions, methods or the like."""
    if not case.row.holds:
        return False
    heaviest = max(case.row.holds, key=lambda content: content.bytes)
    kind = heaviest.type.rpartition(".")[2]
    return kind in _CALLABLES or (may_be_wrapped and kind == "tuple")


def _called_at(case: Case) -> str:
    """Return where the contents are called in a loop, an empty text where they aren't."""
    for use in reads(case.references):
        loop = use.statement.node
        if isinstance(loop, (ast.For, ast.AsyncFor)) and _goes_over(loop.iter, use.node):
            names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
            for node in (n for part in loop.body for n in ast.walk(part)):
                called = node.func if isinstance(node, ast.Call) else None
                if isinstance(called, ast.Name) and called.id in names:
                    return case.sources.location(use.statement.scope.module.file, loop.lineno)
    return ""


def _goes_over(iterated: ast.expr, container: ast.expr) -> bool:
    while isinstance(iterated, ast.Call) and iterated is not container:
        name = iterated.func.id if isinstance(iterated.func, ast.Name) else ""
        if name in _ORDERERS and iterated.args:
            iterated = iterated.args[0]
        elif isinstance(iterated.func, ast.Attribute):
            iterated = iterated.func.value
        else:
            return False
    return iterated is container


def _subscribing(case: Case) -> str:
    """Return where the feeding function is called again and again, empty where that isn't known."""
    function = case.scope
    if function is None or function.kind != "function":
        return ""
    for statement, call in calls_of(case.sources, function):
        if case.sources.heat.of(statement):
            return case.sources.location(statement.scope.module.file, call.lineno)
    return ""
