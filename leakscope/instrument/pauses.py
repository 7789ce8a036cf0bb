"""How long a census may hold the program up, and how many were left out or put off."""

from __future__ import annotations

from leakscope.instrument import policy
from leakscope.instrument.costs import Costs, Due


class Pauses:
    """Holds what a census is expected to take against the pause that the user allows.

    The first census, the first whole walk and the last census are exempt: without the first two
    there is nothing to go on from, and the last holds nothing up. So are the first few where
    training passes begin, without which there is no verdict.
    """

    def __init__(self, most_seconds: float, costs: Costs) -> None:
        self._most = most_seconds
        self.costs = costs
        self.postponed = 0
        """How often a kind of boundary had to wait for its census because of the budget."""
        self.left_out = 0
        """Censuses that were not taken because each would have taken too long."""
        self.made_cheaper = 0
        """Censuses that looked at less for the same reason."""

    def allows(self, kind: Due) -> bool:
        """Return whether a census of this kind may be taken here.

        On a busy machine the program takes longer too: what a census waits for is no pause of it.
        """
        costs = self.costs
        is_first = not costs.has_census or (kind is Due.WHOLE and not costs.knows(Due.WHOLE))
        # What a census that goes on from a seal takes is a rough guess until one was taken.
        is_guess = kind is Due.FULL and not costs.knows(Due.FULL)
        most = self._most * (policy.PAUSE_GUESS if is_guess else 1.0)
        return is_first or costs.expect(kind) / costs.slowed <= most

    @property
    def usual(self) -> Due:
        """The fullest census that is had without a whole walk and within the pause."""
        costs = self.costs
        if not costs.is_sealed:
            return Due.FOCUSED
        is_least = costs.expect(Due.FULL) <= costs.expect(Due.FOCUSED)
        return Due.FULL if is_least or self.allows(Due.FULL) else Due.FOCUSED

    def pass_by(self, kind: Due, *, is_needed: bool = False) -> Due:
        """Return the census that is taken where ``kind`` is due, none if it takes too long."""
        if not is_needed and not self.allows(kind):
            self.costs.fade(kind)
            self.left_out += 1
            return Due.NOTHING
        if kind is Due.FOCUSED and self.costs.is_sealed and not self.allows(Due.FULL):
            self.costs.fade(Due.FULL)
            self.made_cheaper += 1
        return kind
