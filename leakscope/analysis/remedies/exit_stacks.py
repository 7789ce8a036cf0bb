"""Clean-up that waits for the end: ``stack.callback(write, predictions)`` in every epoch.

Recognises what a ``contextlib.ExitStack`` keeps of its calls. Offers no diff: what has to wait, the
program alone knows. A bound would drop clean-up that then never runs.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.model.report import Remedy

_KEPT = "_exit_callbacks"
_GIVING = frozenset({"callback", "push", "enter_context", "push_async_callback"})


def recognise(case: Case) -> Remedy | None:
    """Return how to have each round clean up after itself."""
    if case.growth != "across" or not case.row.path.endswith(f".{_KEPT}"):
        return None
    stack = _stack(case)
    return case.remedy(
        f"Open the ExitStack in each {case.unit or 'round'}, or close it there",
        case.opening(),
        "An ExitStack keeps all that it is given until it is closed. Write `with "
        f"contextlib.ExitStack() as {stack}:` inside the loop, or call {stack}.close() when the "
        "round is done: then its clean-up runs there and what it refers to can go.",
        "What has to wait for the end is better given a path or a number than the data.",
        case.still_reachable(),
    )


def _stack(case: Case) -> str:
    """Return what the program calls the stack."""
    for node in ast.walk(case.node) if case.node else ():
        function = node.func if isinstance(node, ast.Call) else None
        if isinstance(function, ast.Attribute) and function.attr in _GIVING:
            return ast.unparse(function.value)
    return case.name.removesuffix(f".{_KEPT}").rpartition(".")[2]
