"""What a notebook keeps because a cell displayed it. Offers no diff: it isn't kept by the code."""

from __future__ import annotations

import re

from leakscope.analysis.remedies.case import Case
from leakscope.model.notebook import OUTPUT_HISTORY, REMEDY
from leakscope.model.report import Remedy

_CELL = re.compile(r"\bOut\[\d+\]")


def recognise(case: Case) -> Remedy | None:
    """Return how to have a notebook keep less of what it displays."""
    if not case.row.name.startswith(OUTPUT_HISTORY):
        return None
    cells = dict.fromkeys(cell for held in case.row.holds for cell in _CELL.findall(held.detail))
    most = f" Most of it: {', '.join(cells)}." if cells else ""
    opening = f"{case.opening()}{most}"
    return case.remedy("Display less, or clear the output history", opening, REMEDY)
