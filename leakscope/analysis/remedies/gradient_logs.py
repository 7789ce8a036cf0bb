"""Gradients kept for a log: ``log[step] = {name: p.grad.clone() for name, p in …}``.

Recognises a container that is fed with ``.grad`` of something. Offers a diff, the norm as a number,
where nothing reads the contents.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import reads
from leakscope.model.report import Remedy

_COPIES = frozenset({"detach", "clone", "cpu", "data"})


def recognise(case: Case) -> Remedy | None:
    """Return how to keep a number of each gradient."""
    value = case.fed_value
    gradient = _gradient(value) if value is not None else None
    if case.growth != "across" or gradient is None or value is None:
        return None
    diff = None
    if all(use.passed_to == "len" for use in reads(case.references)):
        norm = f"{ast.unparse(_plain(gradient))}.norm().item()"
        diff = case.edits().replace(gradient, norm).diff()
    return case.remedy(
        f"Keep the norms of the gradients in {case.name}",
        case.opening(),
        "Every entry is as large as the parameters themselves. A number of each gradient "
        "(.norm().item(), .abs().max().item()) or a histogram is what a log needs; to look at "
        "whole gradients, keep those of the last steps or write them to a file.",
        case.still_reachable(),
        diff=diff,
    )


def _gradient(value: ast.expr) -> ast.expr | None:
    """Return the expression of a whole gradient in what is stored, copies of it included."""
    if _is_gradient(value):
        return value
    if isinstance(value, ast.DictComp):
        return _gradient(value.value)
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return _gradient(value.elt)
    if isinstance(value, (ast.Tuple, ast.List)):
        return next((part for part in value.elts if _is_gradient(part)), None)
    return None


def _is_gradient(value: ast.expr) -> bool:
    plain = _plain(value)
    return isinstance(plain, ast.Attribute) and plain.attr == "grad"


def _plain(value: ast.expr) -> ast.expr:
    """Return the gradient without the calls that copy it."""
    while True:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr not in _COPIES:
                return value
            value = value.func.value
        elif isinstance(value, ast.Attribute) and value.attr == "data":
            value = value.value
        else:
            return value
