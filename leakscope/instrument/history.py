"""When the allocations of devices are recorded: in a few short windows once live memory grows.

Off unless asked for: a stack costs some microseconds an allocation, and a step may make thousands.
What that adds is measured by the program's pace, and a window ends when its share is spent.
"""

from __future__ import annotations

from typing import Protocol

from leakscope.instrument.costs import Costs
from leakscope.instrument.policy import (
    TRACING_ASSUMED_SLOWDOWN,
    TRACING_BATCHES,
    TRACING_FLOOR_SECONDS,
    TRACING_MOST_SECONDS,
    TRACING_SHARE,
    TRACING_WINDOWS,
)
from leakscope.instrument.slowdown import INSIDE, Pace, Stretch
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key

ACTIVITY = "history"
"""Under which the account of costs has by how much windows slow the program down."""
WARM_UP = 5
"""Readings at boundaries of one kind before a rise counts: optimizer state comes with a step."""
RISES = 3
LEAST_RISE = 1 << 20
KEYS_KEPT = 48


class Recorder(Protocol):
    """What :class:`leakscope.probes.AllocationHistory` offers."""

    def open(self) -> bool:
        """Begin to record; say whether it could be done."""

    def close(self) -> None:
        """End."""


class HistoryWindows:
    """Opens and closes windows of the allocator's history at boundaries."""

    def __init__(
        self, recorder: Recorder | None, costs: Costs | None = None, budget: float = 1.0
    ) -> None:
        self._recorder = recorder
        self._costs = costs or Costs()
        self._budget = budget
        self._pace = Pace(lambda: self._costs.total)
        self._reached = -1
        self._opened: Boundary | None = None
        self._left = TRACING_WINDOWS
        self._grows = False
        self._known: dict[tuple[str, ...], tuple[int, int, int]] = {}

    @property
    def is_open(self) -> bool:
        """Whether the next boundary may have to close a window."""
        return self._opened is not None

    def closes_at(self, boundary: Boundary) -> bool:
        """Take note of a boundary; return whether the open window, if there is one, ends there."""
        if self._recorder is not None and boundary.index != self._reached:
            self._reached = boundary.index
            self._pace.end(boundary)
            self._pace.begin(boundary)
        opened = self._opened
        if opened is None or boundary.index == opened.index:
            return False
        if boundary.kind is BoundaryKind.RUN_END:
            return True
        late = boundary.time_s - opened.time_s >= TRACING_MOST_SECONDS
        enough = late or boundary.batch - opened.batch >= TRACING_BATCHES
        return enough or boundary.phase != opened.phase or self._is_spent(boundary.time_s)

    def _is_spent(self, now: float) -> bool:
        """Whether recording has slowed the program down by all that it may."""
        allowed = max(TRACING_FLOOR_SECONDS, TRACING_SHARE * self._budget * now)
        return (
            self._costs.seconds.get(ACTIVITY, 0.0) + self._pace.slowdown(self._assumed) >= allowed
        )

    def learn(self, boundary: Boundary, gauges: dict[str, int]) -> None:
        """Notice live memory of devices that is higher each time at boundaries of one kind."""
        if self._recorder is None or not self._left:
            return
        for name, value in gauges.items():
            if name.endswith(f".{gauge.DEVICE_ALLOCATED}"):
                key = (name, *comparable_key(boundary))
                before, seen, rises = self._known.pop(key, (value, 0, 0))
                rises = rises + 1 if value >= before + LEAST_RISE and seen >= WARM_UP else 0
                if len(self._known) >= KEYS_KEPT:
                    del self._known[next(iter(self._known))]
                self._known[key] = (value, seen + 1, rises)
                self._grows = self._grows or rises >= RISES

    def open_here(self, boundary: Boundary) -> None:
        """Open a window if live memory grows and this is a boundary inside a phase."""
        if self._recorder is None or not self._left:
            return
        is_place = boundary.kind in (*INSIDE, BoundaryKind.PHASE_BEGIN)
        is_wanted = self._grows and is_place and not self.is_open
        if is_wanted and not self._is_spent(boundary.time_s):
            self._open(boundary, self._recorder)
        self._pace.begin(boundary)

    def close(self) -> None:
        """Close the window if one is open, and charge by how much it slowed the program down."""
        if self.is_open:
            self._costs.spend(ACTIVITY, self._pace.slowdown(self._assumed))
            self._pace.leave()
        self._opened = None
        if self._recorder is not None:
            self._recorder.close()

    def _open(self, boundary: Boundary, recorder: Recorder) -> None:
        self._grows = False
        self._left -= 1
        if recorder.open():
            self._opened = boundary
            self._pace.enter()
        else:
            self._left = 0

    def _assumed(self, stretch: Stretch) -> float:
        """Return what recording is taken to have added to a stretch that was not done often."""
        usual = self._pace.usual(stretch.unit)
        if usual is not None:
            return max(0.0, stretch.seconds - usual * stretch.units)
        return stretch.seconds * TRACING_ASSUMED_SLOWDOWN / (1 + TRACING_ASSUMED_SLOWDOWN)
