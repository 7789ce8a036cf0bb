"""What a run gets at once, whatever its budget: enough for a verdict on a few epochs of seconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

FLOOR_AT_KEY = 6
"""Censuses that each kind of boundary between phases gets at once."""


@dataclass(frozen=True)
class Floor:
    """What a run gets at once, whatever the budget says.

    Seconds are those of a machine that has nothing else to do: on a busy one all takes longer, the
    program too, and a run of the same work gets as many censuses.
    """

    share: float = 0.08
    seconds: float = 1.5
    exempt: int = 2
    """Censuses of each kind beyond the limit that ``share`` and ``seconds`` set."""
    cheap_exempt: int = FLOOR_AT_KEY
    """The same where they are cheap."""
    dear: float = inf
    """Beyond so many seconds only the very first is, and the others get ``share`` alone."""
    has_full: bool = True
    """Whether the whole heap is walked at all."""
    at_end: bool = True
    """Whether the end of the run gets a census."""
    records: int = 200
    """Boundaries that are recorded before their part of the budget spaces them."""


MAIN_FLOOR = Floor()
WORKER_FLOOR = Floor(
    share=0.01,
    seconds=0.1,
    exempt=2,
    cheap_exempt=4,
    dear=0.05,
    has_full=False,
    at_end=False,
    records=24,
)
"""Of a DataLoader's worker, for which the training waits, and of which there are many: a dataset of
a hundred thousand objects and more is walked once at once, and then when the budget pays for it."""
