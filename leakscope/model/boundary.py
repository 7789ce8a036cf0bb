"""Boundaries: the moments between two pieces of training at which memory is measured, and numbers
as files may hold them.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec

_MOST = (1 << 63) - 1
_MOST_SECONDS = 1e12

Whole = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]
"""A count or a size in bytes: what a kernel can tell, and a column of the analysis can hold."""
Seconds = Annotated[float, msgspec.Meta(ge=-_MOST_SECONDS, le=_MOST_SECONDS)]
"""A time or a duration; thirty thousand years fit."""


class BoundaryKind(str, Enum):
    """What has just happened at a boundary."""

    RUN_BEGIN = "run_begin"
    PHASE_BEGIN = "phase_begin"
    STEP = "step"
    """An iteration of training in which at least one optimizer stepped has ended."""
    BATCH = "batch"
    """A batch that stepped no optimizer has ended: validation, inference, gradient accumulation."""
    PHASE_END = "phase_end"
    EPOCH_END = "epoch_end"
    """Only where the program says so (``scope.epochs``, a framework's callback)."""
    MARK = "mark"
    """The user's own ``scope.mark("name")``; comparable with marks of the same label."""
    TIME = "time"
    """A while has passed in which the program reached no other boundary."""
    RUN_END = "run_end"
    REQUEST = "request"
    """The user asked for a census just now. Comparable with nothing, and part of no series."""


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """One boundary and where training stood when it was reached.

    Boundaries are *comparable* when kind, phase and label agree: memory there should be the same
    each time unless something grows.
    """

    index: Whole
    """Counts every boundary of the process from 0, also those that were not recorded."""
    kind: BoundaryKind
    time_s: Seconds
    """Seconds since the recording began (monotonic clock)."""
    phase: str = ""
    """``train``, ``validation``, ``validation:2`` (a second loader), or the user's own name."""
    occurrence: Whole = 0
    """How many times this phase had begun before this time."""
    epoch: Whole = 0
    """Training phases begun so far, less one; 0 before the first."""
    step: Whole = 0
    """Training iterations with an optimizer step that have ended so far."""
    batch: Whole = 0
    """Batches that have ended in this occurrence of the phase."""
    label: str = ""
    expected_batches: Whole | None = None
    """How many batches this occurrence of the phase will have, where the loader tells."""


def comparable_key(boundary: Boundary) -> tuple[str, str, str]:
    """Return the key under which boundaries may be compared with each other."""
    return (boundary.kind.value, boundary.phase, boundary.label)
