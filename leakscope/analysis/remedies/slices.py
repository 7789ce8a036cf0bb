"""Slices that keep the whole of what they were cut from: ``first.append(hidden[:, 0])``.

Recognises a culprit of which most can't be read any more. Offers a diff, a copy of the part, where
the value that is stored is plainly one view. Silent where what is unread is the lesser part.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.running_total import is_cut
from leakscope.model.report import Remedy
from leakscope.model.sizes import human_bytes

_MOST = 0.5
_VIEWS = frozenset(
    {
        "detach", "view", "reshape", "squeeze", "unsqueeze", "flatten", "select", "narrow", "chunk",
        "diagonal", "transpose", "permute", "numpy", "cpu", "t",
    }
)  # fmt: skip


def recognise(case: Case) -> Remedy | None:
    """Return how to keep the part that is read."""
    unread = sum(case.row.unused_bytes.values())
    if case.total <= 0 or unread < _MOST * case.total:
        return None
    copy, value = _copy(case), case.fed_value
    diff = None
    if value is not None and _is_view(value):
        cut = "" if is_cut(value) or not case.has_graph else "detach()."
        diff = case.edits().call_method(value, cut + copy).diff()
    written = f" `{ast.unparse(value)}` is a view." if diff and value is not None else ""
    return case.remedy(
        f"Clone the slice before it is stored in {case.name}",
        f"{case.opening()} {human_bytes(unread)} of that can't be read through it any more: a "
        f"slice keeps the whole storage of what it was cut from.{written}",
        f".{copy} copies the part that is read, and the rest can go.",
        case.still_reachable(),
        diff=diff,
    )


def _copy(case: Case) -> str:
    holds = [content.type for content in case.row.holds]
    is_array = any(name.endswith("ndarray") for name in (*holds[:1], case.row.type))
    return "copy()" if is_array else "clone()"


def _is_view(value: ast.expr) -> bool:
    """Whether an expression takes a part of one tensor, whatever is called on it meanwhile."""
    if isinstance(value, ast.Subscript):
        return True
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _VIEWS
        and _is_view(value.func.value)
    )
