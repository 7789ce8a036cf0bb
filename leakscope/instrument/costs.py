"""What measuring costs: measured per activity, added up, and foretold for the next time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum


class Due(IntEnum):
    """What a boundary is worth, each value including the ones before it."""

    NOTHING = 0
    RECORD = 1
    FOCUSED = 2
    FULL = 3


_RECENT = 0.4
"""Weight of the newest sample in an estimate."""
_LASTING = 0.8
"""Weight that censuses keep with each that follows when it is told how busy the machine is."""
_RECORD_SECONDS = 80e-6
_FOCUSED_SECONDS = 0.010
_SECONDS_PER_BLOCK = 0.4e-6
"""What a walk takes per block that Python has allocated, by `benchmarks/heap`, rounded up."""
_LIBRARY_BLOCKS = 1_500_000
"""More than libraries make: what is beyond is taken for the user's, which a focused walk meets."""
MOST_SLOWED = 4.0
"""Whatever a census has waited for, its program is held up no longer than that."""


class Costs:
    """Seconds spent so far by activity, and what a boundary of each kind is expected to cost."""

    slowed: float = 1.0
    """How many times longer measuring takes than it works: others use the processors meanwhile."""

    def __init__(self, blocks: Callable[[], int] = sys.getallocatedblocks) -> None:
        self.seconds: dict[str, float] = {}
        self.total = 0.0
        self._blocks = blocks
        self._expected: dict[Due, float] = {}
        self._taken = self._worked = 0.0

    def spend(self, activity: str, seconds: float) -> None:
        """Charge time to an activity."""
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds
        self.total += seconds

    def tell(self, activity: str, seconds: float) -> None:
        """Note time that the user has asked to be spent: told, but not out of the budget."""
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds

    def sample(self, due: Due, seconds: float) -> None:
        """Learn what a boundary of this kind has just cost as a whole."""
        before = self._expected.get(due, seconds)
        self._expected[due] = before + _RECENT * (seconds - before)

    def learn_pace(self, seconds: float, worked: float) -> None:
        """Learn from a census that took ``seconds``, in which the processor ``worked`` for it."""
        self._taken = _LASTING * self._taken + seconds
        self._worked = _LASTING * self._worked + worked
        self.slowed = min(self._waits, MOST_SLOWED)

    def knows(self, due: Due) -> bool:
        """Return whether a boundary of this kind was ever measured, here or in a process alike."""
        return due in self._expected

    def expect(self, due: Due) -> float:
        """Return the seconds that the next boundary of this kind will probably cost."""
        known = self._expected.get(due)
        return self._foretell(due) if known is None else known

    def expect_alone(self, due: Due) -> float:
        """Return the same on a machine that has nothing else to do."""
        return self.expect(due) / self._waits

    @property
    def _waits(self) -> float:
        """How many times longer measuring takes than it works, however long that is."""
        return max(self._taken / max(self._worked, 1e-6), 1.0) if self._taken else 1.0

    def _foretell(self, due: Due) -> float:
        """Guess by the size of the heap what was never measured."""
        if due is Due.FULL:
            return _SECONDS_PER_BLOCK * self._blocks()
        if due is Due.FOCUSED:
            beyond = self._blocks() - _LIBRARY_BLOCKS
            return max(_FOCUSED_SECONDS, _SECONDS_PER_BLOCK * beyond)
        return _RECORD_SECONDS
