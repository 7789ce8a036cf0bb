"""What the memory of other processes held: of ranks and workers in which something grows, and of
some to compare them with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.retained.finding import Room, find_retained
from leakscope.model.report import Culprit
from leakscope.model.retained import Retained

MOST_PROCESSES = 5
"""Beside the one that a report tells of."""
ROOM = Room(censuses=40, cells=24_000)
"""Of each: all of them together take no more room than the first."""


def find_elsewhere(
    case: Case, others: Iterable[Case], culprits: Sequence[Culprit]
) -> list[Retained]:
    """Return what the memory of other processes held, in their order; each process once.

    Args:
        case: of the process that the report tells of, on whose clock all is told.
        others: of the others, the most important first; no more are asked for than are told.
        culprits: all of the report.

    """
    found: list[Retained] = []
    seen = {id(case.recording)}
    for other in others:
        if len(found) == MOST_PROCESSES:
            break
        if id(other.recording) in seen:
            continue
        seen.add(id(other.recording))
        with np.errstate(all="ignore"):
            retained = find_retained(other, culprits, ROOM)
        if retained is not None:
            # Clocks of other machines can't tell: those begin with this one.
            later = other.recording.began_after(case.recording) or 0.0
            found.append(_on_clock(retained, later))
    return found


def _on_clock(retained: Retained, later: float) -> Retained:
    return msgspec.structs.replace(
        retained,
        censuses=[
            msgspec.structs.replace(
                census,
                boundary=msgspec.structs.replace(
                    census.boundary, time_s=max(0.0, census.boundary.time_s + later)
                ),
            )
            for census in retained.censuses
        ],
    )
