"""Exceptions kept after they were handled: ``errors.append(error)``.

An exception refers to its traceback, that to every frame it passed, and those to all locals, batch
and loss among them. Recognises storing the name of an ``except … as`` clause, and whole tracebacks.
Offers a diff, ``repr(error)``, where the stored ones are only counted or printed.
"""

from __future__ import annotations

import ast

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import derived_attributes, reads
from leakscope.model.report import Remedy

_PRINTERS = frozenset({"len", "print", "str", "repr", "bool"})


def recognise(case: Case) -> Remedy | None:
    """Return how to keep the message alone."""
    value = case.fed_value
    caught = isinstance(value, ast.Name) and _is_caught(case, value.id)
    mentions = case.row.kind == "traceback" or (
        value is not None and ("exc_info" in ast.unparse(value) or "traceback" in case.row.type)
    )
    if not caught and not mentions:
        return None
    diff = None
    if caught and value is not None and _only_shown(case):
        edits = case.edits()
        diff = edits.replace(value, f"repr({edits.source_of(value)})").diff()
    return case.remedy(
        f"Keep the text of the errors in {case.name}",
        f"{case.opening()} An exception keeps its traceback, and that every local variable of the "
        "functions it passed through: batches, outputs, losses.",
        "Store repr(error) or traceback.format_exc(), or call error.with_traceback(None) first.",
        case.still_reachable(),
        diff=diff,
    )


def _is_caught(case: Case, name: str) -> bool:
    scope = case.scope.resolve(name) if case.scope else None
    return scope is not None and any(b.how == "except" for b in scope.bindings.get(name, []))


def _only_shown(case: Case) -> bool:
    """Whether nothing needs the exceptions themselves."""
    if derived_attributes(case.references):
        return False
    for use in reads(case.references):
        shown = use.passed_to in _PRINTERS or isinstance(use.parent, (ast.If, ast.FormattedValue))
        if not shown:
            return False
    return True
