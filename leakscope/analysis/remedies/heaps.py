"""A heap that only ever gets more: ``heapq.heappush(self.hard, item)``.

Recognises ``heappush`` on the container. Offers no diff: which end is to be kept, the order of the
items says. Its last items are not its latest, so no bound on a list or deque suits it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.remedies.usage import Use, uses
from leakscope.model.report import Remedy

_TAKERS = frozenset({"heappop", "heappushpop", "heapreplace"})
_SMALLEST = frozenset({"nsmallest", "min"})


def recognise(case: Case) -> Remedy | None:
    """Return how to keep as many as are needed."""
    if case.growth != "across" or not any(_calls(case, frozenset({"heappush"}))):
        return None
    taken = any(_calls(case, _TAKERS))
    return case.remedy(
        f"Keep the N largest of {case.name} with heapq.heappushpop",
        case.opening(),
        "Something does take items out, but not as many as heapq.heappush puts in."
        if taken
        else "heapq.heappush only puts in, and nothing takes out.",
        "Once it has N items, heapq.heappushpop(heap, item) puts one in and takes the smallest out "
        "(heapq.heapreplace takes out first), so that the N largest stay.",
        _about_smallest(case),
        case.still_reachable(),
    )


def _calls(case: Case, names: frozenset[str]) -> Iterator[Use]:
    """Yield the uses of the heap as first argument of one of these functions."""
    for use in uses(case.references):
        parent = use.parent
        is_heap = isinstance(parent, ast.Call) and parent.args[:1] == [use.node]
        if is_heap and use.passed_to.rpartition(".")[2] in names:
            yield use


def _about_smallest(case: Case) -> str:
    """Return what to turn round where it is the smallest that are read."""
    for use in uses(case.references):
        called = use.passed_to.rpartition(".")[2]
        if called in _SMALLEST:
            where = case.sources.location(use.statement.scope.module.file, use.statement.line)
            return (
                f"{where} reads the smallest ({called}): give what the items are ordered by the "
                "other sign, for those are the ones to stay."
            )
    return ""
