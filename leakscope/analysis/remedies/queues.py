"""A queue that is filled faster than it is emptied: ``q.put(item)``.

Recognises lines that ``put``. Offers no diff: a bound makes ``put`` wait, and whether that ends is
a question of who takes items out.
"""

from __future__ import annotations

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import uses
from leakscope.analysis.source.program import own_nodes
from leakscope.model.report import Remedy

_TAKERS = frozenset({"get", "get_nowait", "popleft", "pop"})


def recognise(case: Case) -> Remedy | None:
    """Return how to drain or bound the queue."""
    if case.line is None or case.line.form not in {"put", "put_nowait", "enqueue"}:
        return None
    taken = _is_drained(case)
    drained = (
        "Something does take items out, but not as fast: bound the queue with maxsize so that "
        "putting waits, or take several at a time."
        if taken
        else "Nothing in the source takes items out of it: start the consumer, or don't put."
    )
    return case.remedy(
        f"Drain {case.name}" if not taken else f"Bound {case.name}",
        case.opening(),
        drained,
        case.still_reachable(),
    )


def _is_drained(case: Case) -> bool:
    if any(use.method in _TAKERS for use in uses(case.references)):
        return True
    statements = [
        s for name in case.references.names for s in case.sources.program.mentioning(name)
    ]
    return any(
        getattr(node, "attr", "") in _TAKERS and case.references.steps_from(value, s.scope)
        for s in statements
        for node in own_nodes(s.node)
        if (value := getattr(node, "value", None)) is not None
    )
