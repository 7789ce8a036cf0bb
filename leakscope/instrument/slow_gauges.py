"""Gauges that are slow to read: when each is read again, within its part of the budget.

What child processes hold is told by nothing but these. While there are any they are therefore read
by time, also in the middle of a pass that lasts: ever further apart at first, so that a run of
seconds shows whether they grow and for how long; then as often as their part of the budget allows.
So is a DataLoader's worker, which is a child itself and whose censuses may lie far apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Protocol

from leakscope.instrument import policy
from leakscope.instrument.guard import Guard
from leakscope.model import gauge

SLOW_SHARE = 0.05
"""Part of the budget for each source of gauges that is slow to read."""
RECENT = 3
"""A reading is taken to cost what the cheapest of so many did: one may have waited by chance for a
processor, and would put off the next one for long."""
TREE_SHARE = 0.15
"""The same for those that tell of child processes together, while there are any."""
TREE_FIRST_SECONDS = 0.25
TREE_FIRST_COST = 1 / 20
"""Those first readings take no more than this part of the time, …"""
TREE_SPACING = 1 / 3
"""… and lie so far apart, as a part of the time since there were children. The last of them then
lies in the last quarter of a run, however long that is."""
TREE_LATE_SPACING = 1 / 100
"""Later ones lie no nearer than this: a recording grows with the logarithm of time."""
_TREE = frozenset({gauge.CHILDREN, gauge.CHILDREN_PSS, gauge.PSS})


class Reader(Protocol):
    """What :class:`leakscope.probes.Probe` offers."""

    @property
    def name(self) -> str:
        """What the source is called in faults."""

    @property
    def slow(self) -> bool:
        """Whether it is read only now and then."""

    def gauges(self) -> dict[str, int]:
        """Return gauges; may raise."""


class SlowGauges:
    """Reads each source when its last reading is paid for, those of children by time too."""

    def __init__(
        self,
        probes: Iterable[Reader],
        clock: Callable[[], float],
        guard: Guard,
        budget: float,
        *,
        in_child: bool = False,
    ) -> None:
        self._readers = [_SlowReader(probe, clock, guard) for probe in probes]
        self._budget = budget
        self._in_child = in_child
        self._children_since = inf
        self._tree_from = inf
        self.last_seconds = 0.0
        """What the latest call of :meth:`read` took."""

    @property
    def probes(self) -> list[Reader]:
        """The sources themselves."""
        return [reader.probe for reader in self._readers]

    def read(self, now: float, *, everything: bool, between: bool = False) -> dict[str, int]:
        """Return the gauges whose turn it is ``now``, or all of them.

        ``between`` phases, where boundaries are compared, also those that a short run can bear.
        """
        gauges: dict[str, int] = {}
        self.last_seconds = tree_seconds = 0.0
        for reader in self._readers:
            is_due = everything or now >= self._turn_of(reader)
            if is_due or (between and reader.is_bearable(now, self._share_of(reader))):
                gauges.update(reader.read(now, self._budget * SLOW_SHARE))
                self.last_seconds += reader.seconds
                tree_seconds += reader.seconds * reader.is_of_tree
        if self._in_child and tree_seconds:
            self._plan_tree(now, 1, tree_seconds)
        elif gauge.CHILDREN in gauges and gauge.CHILDREN_PSS in gauges:
            self._plan_tree(now, gauges[gauge.CHILDREN], tree_seconds)
        return gauges

    def _turn_of(self, reader: _SlowReader) -> float:
        """Return when a source is read again: those of children together, for they add up."""
        is_timed = reader.is_of_tree and self._tree_from < inf
        return self._tree_from if is_timed else reader.not_before

    def _share_of(self, reader: _SlowReader) -> float:
        """Return the part of a short run that a source may take between phases."""
        is_told_of = reader.is_of_tree and self._tree_from < inf
        return TREE_FIRST_COST if is_told_of else policy.SLOW_FLOOR_SHARE

    def _plan_tree(self, now: float, children: int, seconds: float) -> None:
        """Say when child processes are read again, given what this reading has cost."""
        if not children:
            self._tree_from = inf
            return
        self._children_since = min(self._children_since, now)
        age = now - self._children_since
        first = max(TREE_FIRST_SECONDS, seconds / TREE_FIRST_COST, age * TREE_SPACING)
        paid = max(seconds / (self._budget * TREE_SHARE), age * TREE_LATE_SPACING)
        self._tree_from = now + min(first, paid)


class _SlowReader:
    """A source that is read again only when its last reading has been paid for."""

    def __init__(self, probe: Reader, clock: Callable[[], float], guard: Guard) -> None:
        self.not_before = 0.0
        self.probe = probe
        self.is_of_tree = False
        """Whether it tells of child processes, or of memory that is shared with them."""
        self.seconds = 0.0
        """What the last reading took."""
        self._readings = 0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._clock = clock
        self._guard = guard

    def is_bearable(self, now: float, share: float) -> bool:
        """Say whether a run as short as this one so far can bear one more reading."""
        spent = (self._readings + 1) * min(self._recent, default=0.0)
        allowed = policy.SLOW_FLOOR_SECONDS + share * now
        return self._readings < policy.SLOW_FLOOR or spent <= allowed

    def read(self, now: float, share: float) -> dict[str, int]:
        began = self._clock()
        gauges = self._guard.call(f"probe {self.probe.name}", {}, self.probe.gauges)
        self.seconds = self._clock() - began
        self._readings += 1
        self.is_of_tree = self.is_of_tree or any(map(_is_of_tree, gauges))
        self._recent.append(self.seconds)
        self.not_before = now + min(self._recent) / share
        return gauges


def _is_of_tree(name: str) -> bool:
    return name in _TREE or gauge.is_copied(name)
