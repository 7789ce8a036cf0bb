"""Log records that a handler keeps: each holds the arguments of its call as they are.

Offers no diff: what is worth keeping of an argument only its author knows.
"""

from __future__ import annotations

from leakscope.analysis.remedies.case import Case
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to log without keeping what is logged."""
    if not any(held.type == "logging.LogRecord" for held in case.row.holds):
        return None
    return case.remedy(
        "Log numbers and short texts, and let the handler write sooner",
        case.opening(),
        "A record keeps the arguments of its call until it is written, whole tensors too.",
        "Log .item() or a shape instead, give the handler a smaller capacity, or flush() it.",
        case.still_reachable(),
    )
