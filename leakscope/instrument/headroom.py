"""Foresees that memory runs out: a kernel that kills for memory leaves no time to look then."""

from __future__ import annotations

from math import inf

from leakscope.model import gauge

LOW_SHARE = 0.1
"""Headroom is low when less is left than this part of what the process has, or of all that it
could have where it has little yet."""
MOST_FLOOR = 256 << 20


class Headroom:
    """Tells what is left of memory, and when a census may be the last one there is room for.

    What each limit leaves is read only now and then; in between, resident memory tells how much of
    it has gone since.
    """

    def __init__(self) -> None:
        self._told_at = inf
        self._left: dict[str, tuple[int, int]] = {}

    def learn(self, gauges: dict[str, int], resident: int) -> None:
        """Take note of what the limits leave, as far as it was read, and of resident bytes then."""
        if gauge.SYSTEM_AVAILABLE in gauges:
            self._left["machine"] = gauges[gauge.SYSTEM_AVAILABLE], resident
        if gauge.CGROUP_LIMIT in gauges and gauge.CGROUP_USED in gauges:
            left = gauges[gauge.CGROUP_LIMIT] - gauges[gauge.CGROUP_USED]
            self._left["cgroup"] = left, resident

    def left(self, resident: int) -> int | None:
        """Return the bytes that the tightest limit leaves now; None if nothing is known."""
        known = (left - max(0, resident - before) for left, before in self._left.values())
        least = min(known, default=None)
        return None if least is None else max(0, least)

    def is_running_out(self, resident: int) -> bool:
        """Return whether headroom is under the threshold now, or has halved since it was told."""
        left = self.left(resident)
        if left is None:
            return False
        return left < threshold(left, resident) and 2 * left <= self._told_at

    def told(self, resident: int) -> None:
        """Remember that it was told: once per halving, so some twenty times in a run at most."""
        self._told_at = max(1, self.left(resident) or 0)


def threshold(available: int, resident: int) -> float:
    """Return the bytes under which headroom is low."""
    return LOW_SHARE * max(resident, min(MOST_FLOOR / LOW_SHARE, resident + available))
