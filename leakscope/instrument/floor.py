"""What a run gets at once, whatever its budget: enough for a verdict on a few epochs of seconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from leakscope.instrument import policy


@dataclass(frozen=True)
class Floor:
    """What a run gets at once, whatever the budget says.

    Seconds are those of a machine that has nothing else to do: on a busy one all takes longer, the
    program too, and a run of the same work gets as many censuses.
    """

    share: float = policy.FLOOR_SHARE
    seconds: float = policy.FLOOR_SECONDS
    exempt: int = policy.EXEMPT_AT_KEY
    """Censuses of each kind beyond the limit that ``share`` and ``seconds`` set."""
    cheap_exempt: int = policy.EXEMPT_AT_KEY
    """The same where they take no longer than ``cheap``."""
    cheap: float = 0.0
    dear: float = inf
    """Beyond so many seconds only the very first is, and the others get ``share`` alone."""
    has_full: bool = True
    """Whether the whole heap is walked at all."""
    at_end: bool = True
    """Whether the end of the run gets a census."""
    records: int = policy.FLOOR_RECORDS
    """Boundaries that are recorded before their part of the budget spaces them."""


MAIN_FLOOR = Floor()
WORKER_FLOOR = Floor(
    share=policy.WORKER_FLOOR_SHARE,
    seconds=policy.WORKER_FLOOR_SECONDS,
    cheap_exempt=policy.WORKER_CHEAP_EXEMPT,
    cheap=policy.WORKER_CHEAP_SECONDS,
    dear=policy.WORKER_DEAR_SECONDS,
    has_full=False,
    at_end=False,
    records=policy.WORKER_RECORDS,
)
