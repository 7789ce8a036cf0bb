"""Warnings that differ from time to time: ``warnings.warn(f"{path} has no label")``.

The module that is warned keeps each text, category and line of which it warned, so that none comes
twice (``warnings.warn_explicit``, CPython's ``Lib/warnings.py``). Offers no diff: what of the text
is worth saying only its author knows.
"""

from __future__ import annotations

from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source.suspects import WARNINGS
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to warn without a new text each time."""
    if not case.row.path.endswith(WARNINGS):
        return None
    return case.remedy(
        "Warn with the same text each time, or log what differs",
        case.opening(),
        "Python keeps the text of each warning in the module that is warned, so that it shows none "
        "twice, and never forgets one.",
        "Leave numbers, paths and names out of the text, or hand them to logging.",
        case.still_reachable(),
    )
