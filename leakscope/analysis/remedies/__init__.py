"""What to change about a culprit: one module per recognised pattern, the most specific first.

Each module's ``recognise`` returns a remedy where its pattern is there and None where it isn't.
A diff is offered only where the change is safe as far as the sources show.
"""

from __future__ import annotations

from collections.abc import Callable

from leakscope.analysis.remedies import generic
from leakscope.analysis.remedies.case import Case
from leakscope.analysis.source import FeedingLine, SourceIndex
from leakscope.model.census import CensusRow
from leakscope.model.report import Remedy

PATTERNS: tuple[Callable[[Case], Remedy | None], ...] = ()


def propose(
    row: CensusRow,
    *,
    growth: str,
    unit: str,
    phase: str,
    feeding: list[FeedingLine],
    sources: SourceIndex,
    items_per_unit: float | None = None,
) -> Remedy:
    """Return the remedy for a culprit, with a diff where its pattern is recognised.

    Args:
        row: The culprit's row at its highest census.
        growth: ``across`` or ``within``.
        unit: What the growth is counted by: ``step``, ``validation``, ``epoch``, …
        phase: The phase in which it grows.
        feeding: Its feeding lines, best first.
        sources: The recorded sources.
        items_per_unit: Items added per unit, where known.

    """
    case = Case(row, growth, unit, phase, feeding, sources, items_per_unit)
    for recognise in PATTERNS:
        remedy = recognise(case)
        if remedy is not None:
            return remedy
    return generic.recognise(case)
