"""A metric object that is updated and never reset: ``metric.update(preds, target)``.

Recognises a container inside a library's metric fed by ``update`` or a call. Offers a diff where a
single ``compute()`` in the sources marks the end of a round. Silent where ``reset`` is called.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.program import Statement, own_nodes
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to reset the metric."""
    receiver = _receiver(case)
    if receiver is None or case.line is None:
        return None
    if _calls(case, receiver, "reset"):
        return None
    computing = _calls(case, receiver, "compute")
    is_metric = "metric" in (case.row.path + case.row.type + case.line.text).lower()
    if not is_metric and not computing:
        return None
    return case.remedy(
        f"Reset {receiver} after each round",
        f"{receiver} gathers every batch given to it at {case.where()} (`{case.line.text}`) and "
        "is never reset, so it keeps the predictions of all rounds, and its result mixes them.",
        f"Call {receiver}.reset() after {receiver}.compute().",
        case.still_reachable(),
        diff=_diff(case, receiver, computing),
    )


def _receiver(case: Case) -> str | None:
    """Return the object whose method feeds, as written."""
    if case.node is None or case.line is None or case.line.form not in {"call", "update"}:
        return None
    for node in own_nodes(case.node):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in {"update", "forward"}:
            return ast.unparse(function.value)
        if case.scope is not None and case.references.steps_from(function, case.scope):
            return ast.unparse(function)
    return None


def _calls(case: Case, receiver: str, method: str) -> list[Statement]:
    return [
        statement
        for statement in case.sources.program.mentioning(method)
        for node in own_nodes(statement.node)
        if isinstance(node, ast.Attribute)
        and node.attr == method
        and ast.unparse(node.value) == receiver
    ]


def _diff(case: Case, receiver: str, computing: list[Statement]) -> str | None:
    if len(computing) != 1 or computing[0].scope is not case.scope:
        return None
    node = computing[0].node
    if not isinstance(node, (ast.Assign, ast.Expr, ast.AnnAssign)):
        return None
    return case.edits().insert_after(node, f"{receiver}.reset()").diff()
