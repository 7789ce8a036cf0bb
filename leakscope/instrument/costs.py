"""What measuring costs: measured per activity, added up, and foretold for the next time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum

from leakscope.instrument import policy
from leakscope.instrument.policy import MOST_SLOWED


class Due(IntEnum):
    """What a boundary is worth, each value including the ones before it."""

    NOTHING = 0
    RECORD = 1
    FOCUSED = 2
    """A census of what the user's names reach."""
    FULL = 3
    """A full one that goes on from what an earlier one has sealed."""
    WHOLE = 4
    """A full one that walks every object, and seals."""
    CHECK = 5
    """A full one, and a whole one at the same moment to hold it against."""


class Costs:
    """Seconds spent so far by activity, and what a boundary of each kind is expected to cost."""

    slowed: float = 1.0
    """How many times longer measuring takes than it works: others use the processors meanwhile."""
    is_sealed: bool = False
    """Whether the next full census goes on from a seal."""

    def __init__(self, blocks: Callable[[], int] = sys.getallocatedblocks) -> None:
        self.seconds: dict[str, float] = {}
        self.total = 0.0
        self._blocks = blocks
        self._expected: dict[Due, float] = {}
        self._focused = 0
        self._faded: dict[Due, float] = {}
        self._taken = self._worked = 0.0

    def spend(self, activity: str, seconds: float) -> None:
        """Charge time to an activity."""
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds
        self.total += seconds

    def tell(self, activity: str, seconds: float) -> None:
        """Note time that the user has asked to be spent: told, but not out of the budget."""
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds

    def sample(self, due: Due, seconds: float, objects: int | None = None) -> None:
        """Learn what a boundary of this kind has just cost as a whole.

        The first census of the user's names learns of the program what is learned once, and is no
        measure of the next: that is foretold by the objects that it met.
        """
        if due is Due.CHECK:
            due, seconds = Due.WHOLE, max(0.0, seconds - self.expect(Due.FULL))
        before = self._expected.get(due, seconds)
        if due is Due.FOCUSED and self._focused < 2:
            if self._focused == 0 and objects is not None:
                walk = policy.FOCUSED_SECONDS + policy.SECONDS_PER_BLOCK * objects
                seconds = min(seconds, walk * self._waits)
            before = seconds
            self._focused += 1
        self._expected[due] = before + policy.RECENT * (seconds - before)
        self._faded.pop(due, None)

    def fade(self, due: Due) -> None:
        """Expect a little less of what was too much, so that it is tried again."""
        part = self._faded.get(due, 1.0) * policy.PAUSE_FADES
        self._faded[due] = max(part, policy.PAUSE_LEAST_PART)

    def learn_pace(self, seconds: float, worked: float) -> None:
        """Learn from a census that took ``seconds``, in which the processor ``worked`` for it."""
        self._taken = policy.PACE_LASTING * self._taken + seconds
        self._worked = policy.PACE_LASTING * self._worked + worked
        self.slowed = min(self._waits, MOST_SLOWED)

    def knows(self, due: Due) -> bool:
        """Return whether a boundary of this kind was ever measured, here or in a process alike."""
        return due in self._expected

    @property
    def knows_usual_focused(self) -> bool:
        """Whether a focused census was measured after the first, which costs more than others."""
        return self._focused >= 2

    @property
    def has_census(self) -> bool:
        """Whether a census of any kind was ever measured."""
        return any(due >= Due.FOCUSED for due in self._expected)

    @property
    def full(self) -> Due:
        """What a full census would be now."""
        return Due.FULL if self.is_sealed else Due.WHOLE

    def expect(self, due: Due) -> float:
        """Return the seconds that the next boundary of this kind will probably cost."""
        known = self._expected.get(due)
        expected = self._foretell(due) if known is None else known
        return expected * self._faded.get(due, 1.0)

    def expect_alone(self, due: Due) -> float:
        """Return the same on a machine that has nothing else to do."""
        return self.expect(due) / self._waits

    @property
    def _waits(self) -> float:
        """How many times longer measuring takes than it works, however long that is."""
        return max(self._taken / max(self._worked, 1e-6), 1.0) if self._taken else 1.0

    def _foretell(self, due: Due) -> float:
        """Guess by the size of the heap, or by a kind that was measured, what never was.

        What is guessed by size takes longer where others use the processors meanwhile.
        """
        if due is Due.CHECK:
            return self.expect(Due.FULL) + self.expect(Due.WHOLE)
        if due is Due.WHOLE:
            return policy.WHOLE_SECONDS_PER_BLOCK * self._blocks() * self._waits
        if due is Due.FULL:
            return policy.RESUMED_PART * self.expect(Due.WHOLE)
        if due is Due.FOCUSED:
            beyond = self._blocks() - policy.LIBRARY_BLOCKS
            return max(policy.FOCUSED_SECONDS, policy.SECONDS_PER_BLOCK * beyond) * self._waits
        return policy.RECORD_SECONDS
