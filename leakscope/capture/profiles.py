"""Profiles of allocations in a recording: the history of devices in windows, native allocations by
samples.

The history of devices is off unless requested: a stack costs some microseconds an allocation, and a
step may make thousands. What that adds is measured by the program's pace, and a window ends when
its share is spent.

Sampling native allocations costs what ``benchmarks/native`` says, all run long. So does sampling
Python's own blocks, the more of them the program makes; it ends where its share is spent. Looking
at what is live takes a millisecond or two, and at first some tens for the names of functions; with
a census that is part of what the census costs, otherwise it has a part of the budget of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leakscope.capture import policy
from leakscope.capture.budget import Costs, Due
from leakscope.capture.options import SessionOptions
from leakscope.capture.schedule import INSIDE
from leakscope.capture.tracing import Pace, PaceStretch, allowed_seconds
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind, comparable_key
from leakscope.model.record import Record

if TYPE_CHECKING:
    from leakscope.probes.cuda import AllocationHistory
    from leakscope.probes.native_allocations import NativeProfile

ACTIVITY = "history"
"""Under which the account of costs has by how much windows slow the program down."""
WARM_UP = 5
"""Readings at boundaries of one kind before a rise counts: optimizer state comes with a step."""
RISES = 3
LEAST_RISE = 1 << 20
KEYS_KEPT = 48


class HistoryWindows:
    """Opens and closes windows of the allocator's history at boundaries."""

    def __init__(
        self, recorder: AllocationHistory | None, costs: Costs | None = None, budget: float = 1.0
    ) -> None:
        self._recorder = recorder
        self._costs = costs or Costs()
        self._budget = budget
        self._pace = Pace(lambda: self._costs.total)
        self._reached = -1
        self._opened: Boundary | None = None
        self._left = policy.TRACING_WINDOWS
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
        late = boundary.time_s - opened.time_s >= policy.TRACING_MOST_SECONDS
        enough = late or boundary.batch - opened.batch >= policy.TRACING_BATCHES
        return enough or boundary.phase != opened.phase or self._is_spent(boundary.time_s)

    def _is_spent(self, now: float) -> bool:
        spent = self._costs.seconds.get(ACTIVITY, 0.0) + self._pace.slowdown(self._assumed)
        return spent >= allowed_seconds(self._budget, now)

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

    def _open(self, boundary: Boundary, recorder: AllocationHistory) -> None:
        self._grows = False
        self._left -= 1
        if recorder.open():
            self._opened = boundary
            self._pace.enter()
        else:
            self._left = 0

    def _assumed(self, stretch: PaceStretch) -> float:
        """Return what recording is taken to have added to a stretch that was not done often."""
        usual = self._pace.usual(stretch.unit)
        if usual is not None:
            return max(0.0, stretch.seconds - usual * stretch.units)
        return stretch.assumed_slowdown


_TOO_MANY = (
    "Lines that make Python's objects were sampled no more: the program makes so many that "
    "following them would cost more than the budget."
)


class NativeAllocations:
    """Has native allocations sampled while a session lasts, and writes down what is live."""

    def __init__(
        self,
        profile: NativeProfile | None,
        write: Callable[[Record], bool],
        note: Callable[[str, str], None],
        costs: Costs,
        clock: Callable[[], float],
        budget: float,
    ) -> None:
        self._profile = profile
        self._write = write
        self._note = note
        self._costs = costs
        self._clock = clock
        self._budget = budget
        self._spent = self._charged = self._spent_at = 0.0
        self._judged_at: float | None = None
        self._why_not = ""

    def start(self) -> None:
        """Begin to sample, as early as possible: what is live already has no stack."""
        if self._profile is not None and not self._profile.start():
            self._why_not = self._profile.why_not
            self._profile = None

    @property
    def samples_blocks(self) -> bool:
        """Whether Python's own blocks are sampled too."""
        return self._profile is not None and self._profile.samples_blocks

    @property
    def own_bytes(self) -> int:
        """What the samples and their names take."""
        return 0 if self._profile is None else self._profile.own_bytes

    def at(self, boundary: Boundary, done: Due, resident: int) -> None:
        """Write down what is live at a boundary with a census, or at a new height of memory."""
        if self._why_not:
            self._note("native-off", f"Native allocations were not sampled. {self._why_not}")
            self._why_not = ""
        if self._profile is None:
            return
        began, with_census = self._clock(), done >= Due.FOCUSED
        may_look = self._spent <= policy.NATIVE_FLOOR_SECONDS + (
            policy.NATIVE_SHARE * self._budget * boundary.time_s
        )
        resident = resident if may_look else 0
        record = self._profile.record(boundary.index, resident, with_census=with_census)
        if record is not None:
            self._write(record)
            if not record.is_on:
                self.stop()
                ended = "Sampling of native allocations has ended: it failed, or another tool came."
                self._note("native-fault", ended)
        seconds = self._clock() - began
        self._costs.spend("native", seconds)
        self._spent += 0.0 if with_census else seconds
        if self.samples_blocks:
            self._charge_blocks(self._profile, boundary)

    def _charge_blocks(self, profile: NativeProfile, boundary: Boundary) -> None:
        """Charge what following Python's blocks costs; one that makes too many is left alone."""
        now, spent = boundary.time_s, profile.blocks_seconds
        if boundary.index == 0 or self._judged_at is None:
            self._judged_at = None if boundary.index == 0 else now
            self._charged = self._spent_at = spent
            return
        self._costs.spend("blocks", spent - self._charged)
        self._charged = spent
        if now - self._judged_at < policy.BLOCKS_JUDGED_SECONDS:
            return
        if spent - self._spent_at > policy.BLOCKS_SHARE * self._budget * (now - self._judged_at):
            profile.stop_blocks()
            self._note("blocks-off", _TOO_MANY)
        self._judged_at, self._spent_at = now, spent

    def stop(self) -> None:
        """Sample no more."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None


def chosen_profile(options: SessionOptions, project_root: str) -> NativeProfile | None:
    """Return the profile that a user's options ask for."""
    if options.native == "off":
        return None
    from leakscope.probes.native_allocations import NativeProfile

    return NativeProfile(interval=options.native_interval, project_root=project_root)
