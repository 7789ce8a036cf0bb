"""Parameters handed to an optimizer again and again: ``optimizer.add_param_group(…)`` in a loop.

Recognises the call by name. Offers no diff: which groups are wanted is the program's own business.
"""

from __future__ import annotations

from leakscope.analysis.remedies.case import Case
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to add parameters once."""
    line = next((line for line in case.feeding if "add_param_group" in line.text), None)
    if line is None:
        return None
    where = case.sources.location(line.file, line.line)
    return case.remedy(
        "Add parameter groups once, before the loop",
        f"`{line.text}` at {where} runs repeatedly: each new group keeps its "
        "parameters, and the optimizer keeps state for each of them.",
        "Add the group when its parameters become trainable, and only then; to change a learning "
        "rate, set it in the group that is there.",
        case.still_reachable(),
    )
