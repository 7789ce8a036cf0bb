"""Handlers added to a logger over and over: ``logger.addHandler(…)`` in every epoch.

Recognises ``addHandler`` on a path that runs repeatedly. Offers a diff, a guard, where it is the
only ``addHandler`` of the program. Silent where a guard is there already.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.program import Program
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to add the handler once."""
    node = case.node
    if case.line is None or not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return None
    function = node.value.func
    if not isinstance(function, ast.Attribute) or function.attr != "addHandler":
        return None
    logger = ast.unparse(function.value)
    if case.scope is not None and ".handlers" in ast.unparse(case.scope.node):
        return None
    return case.remedy(
        "Add the log handler once",
        f"`{case.line.text}` at {case.where()} adds one more handler each time; each keeps its "
        "file or buffer, and every message is written once per handler.",
        f"Configure logging before the loop, or only when `{logger}.handlers` is empty.",
        "gc.collect() can't help: loggers live as long as the program.",
        diff=_diff(case, node, logger),
    )


def _diff(case: Case, node: ast.Expr, logger: str) -> str | None:
    if _count(case.sources.program) != 1 or node.lineno != node.end_lineno:
        return None
    edits = case.edits()
    return (
        edits.insert_before(node, f"if not {logger}.handlers:")
        .replace(node, f"    {edits.source_of(node)}")
        .diff()
    )


def _count(program: Program) -> int:
    return len(program.mentioning("addHandler"))
