"""What measuring costs: measured per activity, added up, and foretold for the next time."""

from __future__ import annotations

from enum import IntEnum


class Due(IntEnum):
    """What a boundary is worth, each value including the ones before it."""

    NOTHING = 0
    RECORD = 1
    FOCUSED = 2
    FULL = 3


_RECENT = 0.4
"""Weight of the newest sample in an estimate."""
_FIRST_GUESS = {Due.RECORD: 80e-6, Due.FOCUSED: 0.010, Due.FULL: 0.200}


class Costs:
    """Seconds spent so far by activity, and what a boundary of each kind is expected to cost."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.total = 0.0
        self._expected = dict(_FIRST_GUESS)
        self._measured: set[Due] = set()

    def spend(self, activity: str, seconds: float) -> None:
        """Charge time to an activity."""
        self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds
        self.total += seconds

    def sample(self, due: Due, seconds: float) -> None:
        """Learn what a boundary of this kind has just cost as a whole."""
        if due not in self._measured:
            self._measured.add(due)
            self._expected[due] = seconds
        else:
            self._expected[due] += _RECENT * (seconds - self._expected[due])

    def expect(self, due: Due) -> float:
        """Return the seconds that the next boundary of this kind will probably cost."""
        return self._expected[due]
