"""What a census cost in the workers before: known to those that a loader starts after them.

Workers that live for one epoch would otherwise each find out anew how dear their dataset is, at the
cost of a census.
"""

from __future__ import annotations

import mmap
import struct

from leakscope.instrument.costs import Costs, Due

_SECONDS = struct.Struct("d")


class CensusCost:
    """Seconds in a page that forked workers write to and the process that forked them reads.

    They are those of a machine that has nothing else to do.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)

    @property
    def seconds(self) -> float:
        """What the latest workers found; 0 before any did."""
        seconds: float = _SECONDS.unpack_from(self._page)[0]
        return seconds

    def hand_on(self, costs: Costs) -> None:
        """Tell those that come after this worker, if it knows."""
        if costs.knows(Due.FOCUSED):
            _SECONDS.pack_into(self._page, 0, costs.expect_alone(Due.FOCUSED))


def costs_with(seconds: float) -> Costs:
    """Return the account of a worker to which so many seconds were handed on; 0: none."""
    costs = Costs()
    if seconds > 0:
        costs.sample(Due.FOCUSED, seconds)
    return costs
