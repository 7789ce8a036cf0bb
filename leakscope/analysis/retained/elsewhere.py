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
            found.append(_on_clock(retained, _later(case, other)))
    return found


def _later(case: Case, other: Case) -> float:
    """Return how much later a process began than the one that the report tells of; clocks of other
    machines can't tell.
    """
    one, two = case.recording.header, other.recording.header
    known = one.started > 0 and two.started > 0 and one.host == two.host
    return two.started - one.started if known else 0.0


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
