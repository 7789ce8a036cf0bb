"""What measuring itself makes resident: pages of code and of Python's arenas that a census touched.

They stay when the census is over, and would otherwise be growth that nothing explains. What a
census needs meanwhile would otherwise be a peak of the program's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from leakscope.model import gauge

WORTH_ASKING_BYTES = 256 << 10
"""The C heap is asked again, which takes its locks, only after a rise beyond this."""


class NamedReader(Protocol):
    """What :class:`leakscope.probes.Probe` offers."""

    @property
    def name(self) -> str:
        """What the source is called."""

    def gauges(self) -> dict[str, int]:
        """Return gauges."""


class OwnMemory:
    """Adds up by how much resident memory rose from the beginning of measurements to their end.

    The C heap is left out where it was read before: what stays free in it has a gauge of its own.
    What other threads of the program allocate meanwhile is charged too, for nothing tells it apart.
    """

    def __init__(self, probes: Iterable[NamedReader]) -> None:
        by_name = {probe.name: probe for probe in probes}
        self._process = by_name.get("process")
        self._heap = by_name.get("malloc")
        self.resident = 0
        self._mark = self._peak = 0

    def peak(self, gauges: Mapping[str, int]) -> dict[str, int]:
        """Return the highest resident memory so far that is the program's, as a gauge.

        Args:
            gauges: as they were read, the kernel's mark among them. What measuring raised that to
                hides what the program may reach below.

        """
        mark = gauges.get(gauge.RSS_PEAK)
        if mark is None:
            return {}
        risen = mark if mark > self._mark else 0
        self._mark = mark
        self._peak = max(self._peak, risen, gauges.get(gauge.RSS, 0))
        return {gauge.RSS_PEAK: self._peak}

    def charge(self, before: Mapping[str, int]) -> None:
        """Charge what has risen since the gauges of this boundary were read."""
        if self._process is None or gauge.RSS not in before:
            return
        now = self._process.gauges()
        self._mark = now.get(gauge.RSS_PEAK, self._mark)
        risen = now.get(gauge.RSS, 0) - before[gauge.RSS]
        if risen >= WORTH_ASKING_BYTES and self._heap is not None and _heap_bytes(before):
            risen -= _heap_bytes(self._heap.gauges()) - _heap_bytes(before)
        self.resident = max(self.resident + risen, 0)


def _heap_bytes(gauges: Mapping[str, int]) -> int:
    return gauges.get(gauge.MALLOC_IN_USE, 0) + gauges.get(gauge.MALLOC_FREE, 0)
