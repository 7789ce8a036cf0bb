"""A list that is filled in every round and never emptied: predictions of all validations.

Recognises a list, dict or set that outlives the round and is fed in a loop of it. Offers a diff,
emptying it where the round begins, where everything that reads it stands in the round itself and it
doesn't leave the function. Silent where the source empties it already.
"""

from __future__ import annotations

import ast
import re

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import Use, reads, releases
from leakscope.analysis.source.mutations import FEEDERS
from leakscope.analysis.source.program import LOOPS, Statement
from leakscope.model.report import Remedy

_ROUND = re.compile(r"val|eval|test|train|epoch|predict|infer", re.IGNORECASE)
_KINDS = frozenset({"list", "dict", "set", "deque"})


def recognise(case: Case) -> Remedy | None:
    """Return how to empty the container in each round."""
    statement = case.statement
    if case.growth != "across" or case.row.kind not in _KINDS or statement is None:
        return None
    if case.line is None or case.line.form not in FEEDERS | {"setitem", "augmented"}:
        return None
    per_step = case.unit in {"step", "batch"} and len(statement.loops) < 2
    if per_step or releases(case.references) or not _outlives(case):
        return None
    diff = _diff(case, statement)
    if diff is None and _unread(case):
        return None
    round_name = case.phase or case.unit or "round"
    return case.remedy(
        f"Empty {case.name} in each {case.unit or 'round'}",
        case.opening(),
        f"Nothing in the source empties it, so it keeps those of every earlier {round_name}"
        f"{', and what is computed from it mixes them' if _computed_from(case) else ''}. Empty it "
        "where the round begins, or keep only the figures computed from it.",
        _unread(case),
        case.about_views(),
        case.still_reachable(),
        diff=diff,
    )


def _computed_from(case: Case) -> bool:
    """Whether something is computed from all of its contents together."""
    for use in reads(case.references):
        looped = isinstance(use.parent, (ast.For, ast.AsyncFor, ast.comprehension))
        computed = bool(use.passed_to) and use.passed_to not in {"len", "print"}
        whole = isinstance(use.parent, ast.Subscript) and isinstance(use.parent.slice, ast.Slice)
        if looped or computed or whole or use.method in {"values", "items", "copy"}:
            return True
    return False


def _unread(case: Case) -> str:
    used = [use for use in reads(case.references) if use.passed_to != "len"]
    return "" if used else "In the recorded source nothing reads it: does it have to be kept?"


def _outlives(case: Case) -> bool:
    """Whether the container is an attribute, a global, or a local of an outer function or loop."""
    statement = case.statement
    assert statement is not None
    for place, _ in case.references.chain:
        if place.kind == "attr":
            return True
        if place.scope is not None and place.scope is not statement.scope:
            return True
    return len(statement.loops) > 1


def _diff(case: Case, statement: Statement) -> str | None:
    receiver = _receiver(case)
    if receiver is None or not case.has_payload() or _leaves(case):
        return None
    kept_outside = not _is_local(case, statement)
    if kept_outside and len(statement.loops) == 1 and case.unit not in {"step", "batch"}:
        readers = {use.statement.scope for use in reads(case.references)}
        elsewhere = readers - {statement.scope}
        if elsewhere or not (_reads_after(case, statement) or _ROUND.search(statement.scope.name)):
            return None
        return case.edits().insert_before(statement.loops[0], f"{receiver}.clear()").diff()
    if len(statement.loops) == 2:
        outer = statement.loops[0]
        inside = all(_within(use, outer) for use in reads(case.references))
        if inside and isinstance(outer, LOOPS) and _reads_after(case, statement):
            return case.edits().insert_before(outer.body[0], f"{receiver}.clear()").diff()
    return None


def _reads_after(case: Case, statement: Statement) -> bool:
    """Whether the round itself reads the container once it is full."""
    end = statement.loops[-1].end_lineno or 0
    return any(use.statement.line > end for use in reads(case.references))


def _receiver(case: Case) -> str | None:
    function = case.fed.func if case.fed else None
    if not isinstance(function, ast.Attribute) or case.scope is None:
        return None
    if () not in case.references.steps_from(function.value, case.scope):
        return None
    receiver = function.value
    if isinstance(receiver, ast.Subscript) and isinstance(receiver.slice, ast.Constant):
        return case.edits().source_of(receiver)
    is_plain = isinstance(receiver, (ast.Name, ast.Attribute))
    return ast.unparse(receiver) if is_plain else None


def _is_local(case: Case, statement: Statement) -> bool:
    """Whether the feeding function itself makes the container, or gets it as an argument."""
    scopes = [p.scope for p in case.references.places if p.kind == "name"]
    return statement.scope in scopes and statement.scope.kind == "function"


def _leaves(case: Case) -> bool:
    """Whether the container itself is handed on, so that emptying it would be seen elsewhere."""
    return any(_hands_on(use) for use in reads(case.references))


def _hands_on(use: Use) -> bool:
    if isinstance(use.parent, (ast.Return, ast.Yield, ast.Dict, ast.Tuple, ast.List)):
        return True
    return isinstance(use.parent, (ast.Assign, ast.AnnAssign)) and use.parent.value is use.node


def _within(use: Use, loop: ast.stmt) -> bool:
    return loop in use.statement.loops
