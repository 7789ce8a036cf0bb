"""Slices that keep the whole of what they were cut from: ``first.append(hidden[:, 0])``.

Recognises a culprit of which most can't be read any more. Offers a diff, a copy of the part, where
the value that is stored is plainly one view. Silent where what is unread is the lesser part.
"""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.running_total import is_cut
from leakscope.model.report import Remedy
from leakscope.model.sizes import human_bytes

_MOST = 0.5
_PART = re.compile(r"\[\*\]\[('[^']*'|\d+)\]")
"""From a container to one part of each of its items."""
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
    copy, value = _copy(case), _stored(case)
    diff = None
    if copy and value is not None and _is_view(value):
        cut = "" if is_cut(value) or not case.has_graph else "detach()."
        diff = case.edits().call_method(value, cut + copy).diff()
    written = f" `{ast.unparse(value)}` is a view." if diff and value is not None else ""
    how = f".{copy} copies" if copy else ".clone() of a tensor or .copy() of an array copies"
    return case.remedy(
        f"{'Copy' if copy == 'copy()' else 'Clone'} the slice before it is stored in {case.name}",
        f"{case.opening()} {human_bytes(unread)} of that can't be read through it any more: a "
        f"slice keeps the whole storage of what it was cut from.{written}",
        f"{how} the part that is read, and the rest can go.",
        case.still_reachable(),
        diff=diff,
    )


def _copy(case: Case) -> str:
    """Return the method that copies what keeps the whole, empty where that can't be told."""
    keeping = [row.type for row in case.inside if sum(row.unused_bytes.values()) > 0]
    holds = [content.type for content in case.row.holds]
    for name in (case.row.type, *holds, *keeping):
        if name.endswith("ndarray"):
            return "copy()"
        if name.endswith(("Tensor", "Parameter")):
            return "clone()"
    return ""


def _stored(case: Case) -> ast.expr | None:
    """Return what is stored; of a dict or tuple the part that the census saw to keep the whole."""
    value = case.fed_value
    keys = {
        found[1]
        for row in case.inside
        if row.kind in {"array", "tensor", "graph"} and sum(row.unused_bytes.values()) > 0
        if (found := _PART.fullmatch(row.path.removeprefix(case.row.path)))
    }
    if len(keys) != 1:
        return value
    (key,) = keys
    if isinstance(value, ast.Tuple) and key.isdecimal() and int(key) < len(value.elts):
        return value.elts[int(key)]
    if isinstance(value, ast.Dict):
        parts = [v for k, v in zip(value.keys, value.values, strict=True) if _names(k, key)]
        return parts[-1] if parts else value
    return value


def _names(node: ast.expr | None, key: str) -> bool:
    return isinstance(node, ast.Constant) and repr(node.value) == key


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
