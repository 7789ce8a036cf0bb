"""Parameters handed to an optimizer again and again: ``optimizer.add_param_group(…)`` in a loop.

Recognises the call by name. Offers no diff: which groups are wanted is the program's own business.
"""

from __future__ import annotations

from leakscope.analysis.remedies.case import Case
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to add parameters once."""
    if case.line is None or "add_param_group" not in case.line.text:
        return None
    return case.remedy(
        "Add parameter groups once, before the loop",
        f"`{case.line.text}` at {case.where()} runs repeatedly: each new group keeps its "
        "parameters, and the optimizer keeps state for each of them.",
        "Add the group when its parameters become trainable, and only then; to change a learning "
        "rate, set it in the group that is there.",
        case.still_reachable(),
    )
