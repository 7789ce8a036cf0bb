"""When the allocations of devices are recorded: in a few short windows once live memory grows.

Off unless asked for: a stack costs some microseconds an allocation, and a step may make thousands.
"""

from __future__ import annotations

from typing import Protocol

from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key

WINDOWS = 3
BATCHES = 8
"""A window lasts so many batches at most."""
MOST_SECONDS = 4.0
WARM_UP = 5
"""Readings at boundaries of one kind before a rise counts: optimizer state comes with a step."""
RISES = 3
LEAST_RISE = 1 << 20
KEYS_KEPT = 48
_INSIDE = (BoundaryKind.STEP, BoundaryKind.BATCH)


class Recorder(Protocol):
    """What :class:`leakscope.probes.AllocationHistory` offers."""

    def open(self) -> bool:
        """Begin to record; say whether it could be done."""

    def close(self) -> None:
        """End."""


class HistoryWindows:
    """Opens and closes windows of the allocator's history at boundaries."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._opened: Boundary | None = None
        self._left = WINDOWS
        self._grows = False
        self._known: dict[tuple[str, ...], tuple[int, int, int]] = {}

    @property
    def is_open(self) -> bool:
        """Whether the next boundary may have to close a window."""
        return self._opened is not None

    def closes_at(self, boundary: Boundary) -> bool:
        """Whether the open window, if there is one, ends at this boundary."""
        opened = self._opened
        if opened is None or boundary.index == opened.index:
            return False
        if boundary.kind is BoundaryKind.RUN_END:
            return True
        late = boundary.time_s - opened.time_s >= MOST_SECONDS
        return late or boundary.phase != opened.phase or boundary.batch - opened.batch >= BATCHES

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
        if self._recorder is None or not self._grows or self.is_open or not self._left:
            return
        if boundary.kind in (*_INSIDE, BoundaryKind.PHASE_BEGIN):
            self._grows = False
            self._left -= 1
            if self._recorder.open():
                self._opened = boundary
            else:
                self._left = 0

    def close(self) -> None:
        """Close the window if one is open."""
        self._opened = None
        if self._recorder is not None:
            self._recorder.close()
