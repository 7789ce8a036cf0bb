"""A graph kept on purpose: ``loss.backward(retain_graph=True)``.

Recognises the argument in a function that also feeds the graph that grows. Offers no diff: without
the argument the program may stop with an error that shows where the chain is really held.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return what to do about the kept graph."""
    if not case.has_graph or case.scope is None:
        return None
    line = retaining_line(case)
    if line is None:
        return None
    where = case.sources.location(case.scope.module.file, line)
    return case.remedy(
        f"Cut the graph that {case.name} keeps, then drop retain_graph=True",
        f"{case.name} keeps autograd graphs alive ({case.measure() or 'more each time'}), and "
        f"{where} calls backward(retain_graph=True), which leaves every saved tensor in them.",
        "It is needed only for a second backward() through the same graph. If removing it gives "
        "'Trying to backward through the graph a second time', a value is carried over from an "
        "earlier iteration: detach that one.",
        case.still_reachable(),
    )


def retaining_line(case: Case) -> int | None:
    """Return the line of the feeding function that keeps the graph, None where none does."""
    if case.scope is None:
        return None
    for node in ast.walk(case.scope.node):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
                if keyword.arg == "retain_graph" and is_true:
                    return node.lineno
    return None
