"""A list that a phase fills and gives back: it doesn't leak, but it sets the peak.

Recognises a local container fed in a loop that grows within its phase. Offers no diff: what may be
computed batch by batch depends on what is computed. Silent for growth across phases.
"""

from __future__ import annotations

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import reads
from leakscope.model.report import Remedy

_KINDS = frozenset({"list", "dict", "set", "deque", "tuple"})


def recognise(case: Case) -> Remedy | None:
    """Return how to gather less at a time."""
    if case.growth != "within" or case.row.kind not in _KINDS or case.statement is None:
        return None
    given_back = "and is given back afterwards: it sets the peak."
    ends = given_back if case.falls_back else "and nothing shows it given back."
    return case.remedy(
        f"Reduce {case.name} batch by batch",
        f"{case.opening()} It holds the whole {case.phase or 'phase'} at once {ends}",
        _consumer(case),
        "If all of it is needed, keep the smallest form (numbers, half precision, only what the "
        "metric reads) or write it to disk.",
        case.about_views(),
        case.still_reachable(),
    )


def _consumer(case: Case) -> str:
    """Return where its contents are used at last, and what to compute there instead."""
    assert case.statement is not None and case.line is not None
    if not case.line.is_direct:
        return ""
    end = case.statement.loops[-1].end_lineno or 0 if case.statement.loops else 0
    later = [
        use.statement
        for use in reads(case.references)
        if use.statement.line > end and use.statement.scope is case.scope
    ]
    if not later:
        return "Nothing after the loop reads it: does it have to be gathered at all?"
    where = case.sources.location(later[0].scope.module.file, later[0].line)
    return f"It is used at {where}: compute that batch by batch, as running sums or counts."
