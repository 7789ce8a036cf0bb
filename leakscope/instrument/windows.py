"""When tracemalloc is on: in a few short windows once something grows, or always on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from leakscope.instrument.growth import GrowthWatch, place_of_growth
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, Site
from leakscope.model.record import AllocationRecord

WINDOWS = 3
WINDOWS_IN_PHASE = 2
BATCHES = 8
"""A window lasts so many batches at most."""
LEAST_SECONDS = 0.3
MOST_SECONDS = 4.0
BUDGET_SHARE = 0.5
SLOWDOWN_SHARE = 0.5
"""Part of a window's time that tracing is taken to cost before it was measured."""
ALWAYS_EVERY_SECONDS = 30.0
ALWAYS_EVERY_SHARE = 0.1
_INSIDE = (BoundaryKind.STEP, BoundaryKind.BATCH)
_CLOSING = (BoundaryKind.PHASE_END, BoundaryKind.RUN_END)


class Window(Protocol):
    """What :class:`leakscope.probes.AllocationWindow` offers."""

    is_open: bool

    def open(self) -> bool:
        """Begin to trace."""

    def close(self, top: int = 60, project_root: str = "") -> tuple[list[Site], int]:
        """End; return the lines that allocated most, and all bytes traced."""


class AllocationWindows:
    """Opens and closes windows of tracemalloc at boundaries."""

    def __init__(
        self,
        mode: str,
        make: Callable[[], Window],
        *,
        budget: float,
        project_root: str,
        growth: GrowthWatch,
    ) -> None:
        self.growth = growth
        self._mode = mode
        self._make = make
        self._budget = budget
        self._project_root = project_root
        self._window: Window | None = None
        self._whole: Window | None = None
        self._opened: Boundary | None = None
        self._closes_at = 0.0
        self._counts: dict[str, int] = {}
        self._wanted: str | None = None
        self._pace: dict[str, float] = {}
        self._last: Boundary | None = None

    @property
    def is_open(self) -> bool:
        """Whether the next boundary may have to close a window."""
        return self._window is not None

    def begin(self, boundary: Boundary) -> None:
        """Open the window over everything, if that was asked for."""
        if self._mode == "always":
            self._whole = self._make()
            self._whole.open()
            self._open(boundary, seconds=ALWAYS_EVERY_SECONDS)

    def learn(self, boundary: Boundary, census: Census, gauges: Mapping[str, int]) -> None:
        """Look for growth in a census that was taken outside a window."""
        if self.growth.learn(boundary, census, gauges) and self._mode == "window":
            self._wanted = place_of_growth(boundary)

    def open_here(self, boundary: Boundary) -> None:
        """Open a window if one is wanted in this phase and its time allows it."""
        self._keep_pace(boundary)
        if self._wanted is None or self._window is not None:
            return
        if boundary.kind not in (*_INSIDE, BoundaryKind.PHASE_BEGIN):
            return
        phase, seconds = boundary.phase, self._seconds(boundary.time_s)
        if self._wanted not in ("", phase) or self._counts.get(phase, 0) >= WINDOWS_IN_PHASE:
            return
        if sum(self._counts.values()) < WINDOWS and self._pace.get(phase, 0.0) <= seconds:
            self._counts[phase] = self._counts.get(phase, 0) + 1
            self._wanted = None
            self._open(boundary, seconds=seconds)

    def closes_at(self, boundary: Boundary) -> bool:
        """Whether the open window, if there is one, has to be closed at this boundary."""
        opened = self._opened
        if self._window is None or opened is None or boundary.index == opened.index:
            return False
        if boundary.time_s >= self._closes_at or boundary.kind is BoundaryKind.RUN_END:
            return True
        if self._mode == "always":
            return False
        left = boundary.kind in _CLOSING and boundary.phase == opened.phase
        return left or boundary.batch - opened.batch >= BATCHES

    def close(self, boundary: Boundary) -> tuple[AllocationRecord, float]:
        """Close the window; return what it saw and the seconds that tracing has cost."""
        window, opened = self._window, self._opened
        assert window is not None
        assert opened is not None
        self._window = self._opened = None
        sites, traced = window.close(project_root=self._project_root)
        record = AllocationRecord(
            first_boundary=opened.index,
            last_boundary=boundary.index,
            sites=sites,
            traced_bytes=traced,
        )
        if self._mode == "always" and boundary.kind is not BoundaryKind.RUN_END:
            share = ALWAYS_EVERY_SHARE * boundary.time_s
            self._open(boundary, seconds=max(ALWAYS_EVERY_SECONDS, share))
        return record, self._slowdown(opened, boundary)

    def end(self, boundary: Boundary) -> AllocationRecord | None:
        """Close what is open without a census; return what the window over everything saw."""
        window, self._window = self._window, None
        if window is not None:
            window.close(top=0)
        whole, self._whole = self._whole, None
        if whole is None:
            return None
        sites, traced = whole.close(project_root=self._project_root)
        return AllocationRecord(
            first_boundary=0, last_boundary=boundary.index, sites=sites, traced_bytes=traced
        )

    def _open(self, boundary: Boundary, *, seconds: float) -> None:
        # Known to be open before it is: what breaks into the opening must not leave it on for good.
        self._opened = boundary
        self._closes_at = boundary.time_s + seconds
        self._window = self._make()
        self._window.open()

    def _seconds(self, elapsed: float) -> float:
        affordable = BUDGET_SHARE * self._budget * elapsed / SLOWDOWN_SHARE
        return max(LEAST_SECONDS, min(affordable, MOST_SECONDS))

    def _keep_pace(self, boundary: Boundary) -> None:
        last, self._last = self._last, boundary
        if last is None or self._window is not None or boundary.kind not in _INSIDE:
            return
        if last.phase == boundary.phase and last.occurrence == boundary.occurrence:
            batches = boundary.batch - last.batch
            if batches > 0 and len(self._pace) < WINDOWS * 100:
                self._pace[boundary.phase] = (boundary.time_s - last.time_s) / batches

    def _slowdown(self, opened: Boundary, closed: Boundary) -> float:
        seconds = closed.time_s - opened.time_s
        usual = self._pace.get(opened.phase)
        batches = closed.batch - opened.batch
        if usual is None or closed.occurrence != opened.occurrence or batches <= 0:
            return SLOWDOWN_SHARE * seconds
        return max(0.0, seconds - usual * batches)
