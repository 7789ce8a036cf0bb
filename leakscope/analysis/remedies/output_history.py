"""What a notebook keeps because a cell displayed it. Offers no diff: it isn't kept by the code."""

from __future__ import annotations

from leakscope.analysis.remedies.case import Case
from leakscope.model.notebook import OUTPUT_HISTORY, REMEDY
from leakscope.model.report import Remedy


def recognise(case: Case) -> Remedy | None:
    """Return how to have a notebook keep less of what it displays."""
    if not case.row.name.startswith(OUTPUT_HISTORY):
        return None
    return case.remedy("Display less, or clear the output history", case.opening(), REMEDY)
