"""Windows of tracemalloc: when tracing is on, and by how much it slows the program down.

They serve where Python's blocks can't be sampled (``probes/native/blocks.c``), or where somebody
asks for them.

A window costs the program time for every block that Python hands out. So the blocks of some steps
are counted before one opens, which costs next to nothing, and it opens only where tracing as many
can be afforded. While it is open its cost is measured, and it closes when its share of the budget
is spent: at a boundary, or in the middle of a step that allocates more than the ones before it.

What a probe takes itself is measured by a clock around it. One that makes every allocation
dearer is paid by the program, between boundaries, so the program's own pace is what tells: seconds
between boundaries, less what leakscope measured there, for each batch of a phase, for the rest of a
phase after its last batch, or for a whole phase of which no batches are seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import NamedTuple

from leakscope.capture import policy
from leakscope.capture.budget import Costs
from leakscope.capture.schedule import INSIDE, GrowthWatch, place_of_growth
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, Site
from leakscope.model.record import AllocationRecord
from leakscope.probes.allocations import AllocationCounter, AllocationWindow, TracingCost

ALWAYS_EVERY_SECONDS = 30.0
ALWAYS_EVERY_SHARE = 0.1
ACTIVITY = "tracemalloc"
"""Under which the account of costs has all that windows take."""
_MOST_LINES = 60
_CLOSING = (BoundaryKind.PHASE_END, BoundaryKind.RUN_END)
_CUT = (
    "Tracing of allocating lines was ended in the middle of a step that allocates far more than "
    "the steps before it: the budget would have been exceeded."
)


class NoCounter(AllocationCounter):
    """Where blocks can't be counted the program's pace alone decides."""

    def start(self) -> bool:
        """Return False."""
        return False

    @staticmethod
    def alive() -> int:
        """Return 0."""
        return 0

    @staticmethod
    def cost(frames: int = 8) -> TracingCost | None:
        """Return None."""
        return None


class AllocationWindows:
    """Opens and closes windows of tracemalloc at boundaries."""

    def __init__(
        self,
        mode: str,
        make: Callable[[], AllocationWindow],
        growth: GrowthWatch,
        costs: Costs,
        counter: AllocationCounter | None,
        note: Callable[[str, str], None],
        budget: float,
        project_root: str,
    ) -> None:
        self.growth = growth
        self._mode = "window" if mode == "auto" else mode
        self._make = make
        self._budget = budget
        self._project_root = project_root
        self._costs = costs
        self._note = note
        self._meter = _OverheadMeter(self._costs, counter or NoCounter())
        self._window: AllocationWindow | None = None
        self._whole: AllocationWindow | None = None
        self._opened: Boundary | None = None
        self._closes_at = 0.0
        self._allowance = 0.0
        self._counts: dict[str, int] = {}
        self._wanted: str | None = None
        self._not_before: dict[str, float] = {}
        self._reached = -1
        self._closes = False

    @property
    def is_open(self) -> bool:
        """Whether the next boundary may have to close a window."""
        return self._window is not None

    @property
    def closes_at_time(self) -> float | None:
        """When the open window is to be closed, in seconds of the run, if nothing else ends it."""
        return self._closes_at if self._window is not None and self._mode == "window" else None

    @property
    def listens(self) -> bool:
        """Whether it needs every boundary, also of those that aren't measured."""
        return self._window is not None or self._meter.is_on

    def leave_to_samples(self) -> None:
        """Open no window: sampled blocks tell which lines allocate."""
        self._mode = "off"

    def begin(self, boundary: Boundary) -> None:
        """Open the window over everything, if that was requested."""
        if self._mode == "always":
            self._meter.start(boundary)
            self._whole = self._make()
            self._whole.open()
            self._open(boundary, seconds=ALWAYS_EVERY_SECONDS)

    def learn(self, boundary: Boundary, census: Census, gauges: Mapping[str, int]) -> None:
        """Look for growth in a census; in a window only outside of the user's names: tracing adds
        to it.
        """
        self.growth.learn_elsewhere(census)
        if self._window is not None:
            return
        if self.growth.learn(boundary, census, gauges) and self._mode == "window":
            self._wanted = place_of_growth(boundary)

    def closes_at(self, boundary: Boundary) -> bool:
        """Take note of a boundary; return whether the open window has to be closed there."""
        if boundary.index == self._reached:
            self._meter.pause()  # it is measured: what is allocated meanwhile is ours
            return self._closes
        self._reached = boundary.index
        self._meter.arrive(boundary)
        if self._window is not None and self._window.is_cut:
            self._leave(boundary)
            self._note("tracing-cut", _CUT)
        self._closes = self._has_to_close(boundary)
        self._go_on(boundary)
        return self._closes

    def open_here(self, boundary: Boundary) -> None:
        """Open a window if one is wanted in this phase and can be afforded."""
        if self._window is None and self._is_wanted(boundary):
            self._try_to_open(boundary)
        elif self._window is None:
            self._meter.stop()
        self._go_on(boundary)

    def close(self, boundary: Boundary) -> AllocationRecord:
        """Close the window and charge what it has cost the program; return what it saw.

        Where reading all that lives is too expensive, the census' own lines must do.
        """
        opened = self._opened
        assert opened is not None
        is_read = self._mode == "always" or self._meter.cost_now() <= self._allowance
        sites, traced = self._leave(boundary, top=_MOST_LINES if is_read else 0)
        record = AllocationRecord(
            first_boundary=opened.index,
            last_boundary=boundary.index,
            sites=sites,
            traced_bytes=traced,
        )
        if self._mode == "always" and boundary.kind is not BoundaryKind.RUN_END:
            share = ALWAYS_EVERY_SHARE * boundary.time_s
            self._open(boundary, seconds=max(ALWAYS_EVERY_SECONDS, share))
        return record

    def end(self, boundary: Boundary) -> AllocationRecord | None:
        """Close what is open without a census; return what the window over everything saw."""
        if self._window is not None:
            self._leave(boundary, top=0)
        self._meter.stop()
        if self._whole is None:
            return None
        sites, traced = self._whole.close(project_root=self._project_root)
        self._whole = None
        return AllocationRecord(
            first_boundary=0, last_boundary=boundary.index, sites=sites, traced_bytes=traced
        )

    def _is_wanted(self, boundary: Boundary) -> bool:
        phase = boundary.phase
        # One more where its census has rows of libraries: those before may have been too early.
        more = int(self.growth.is_unnamed and self._costs.is_sealed)
        return (
            self._wanted in ("", phase)
            and boundary.kind in (*INSIDE, BoundaryKind.PHASE_BEGIN, BoundaryKind.TIME)
            and self._counts.get(phase, 0) < policy.TRACING_WINDOWS_IN_PHASE + more
            and sum(self._counts.values()) < policy.TRACING_WINDOWS + more
            and boundary.time_s >= self._not_before.get(phase, 0.0)
        )

    def _try_to_open(self, boundary: Boundary) -> None:
        phase, now = boundary.phase, boundary.time_s
        self._meter.start(boundary)
        by_time = boundary.kind is BoundaryKind.TIME
        foretold = self._meter.foretell_second() if by_time else self._meter.foretell(boundary)
        if foretold is None:
            return  # some steps more, and it will be known
        left = allowed_seconds(self._budget, now) - self._spent
        least = policy.TRACING_FLOOR_SECONDS / policy.TRACING_WINDOWS
        self._allowance = min(left, max(least, left / 2))
        if by_time:  # what it costs until the next such boundary depends on when that comes
            seconds = min(self._allowance / max(foretold, 1e-9), policy.TRACING_BY_TIME_SECONDS)
            is_affordable = seconds >= policy.TIME_WAKES_SECONDS
        else:
            seconds, is_affordable = policy.TRACING_MOST_SECONDS, foretold <= self._allowance
        if is_affordable:
            self._counts[phase] = self._counts.get(phase, 0) + 1
            self._wanted = None
            self._open(boundary, seconds=seconds)
            return
        self._meter.stop()
        if len(self._not_before) < policy.TRACING_PHASES_KEPT:
            earned = self._spent + 2 * foretold
            self._not_before[phase] = earned / (policy.TRACING_SHARE * self._budget)

    @property
    def _spent(self) -> float:
        return self._costs.seconds.get(ACTIVITY, 0.0)

    def _has_to_close(self, boundary: Boundary) -> bool:
        opened = self._opened
        if self._window is None or opened is None or boundary.index == opened.index:
            return False
        if boundary.time_s >= self._closes_at or boundary.kind is BoundaryKind.RUN_END:
            return True
        if self._mode == "always":
            return False
        again = boundary.occurrence != opened.occurrence  # its end was not measured
        left = boundary.phase == opened.phase and (boundary.kind in _CLOSING or again)
        if left or boundary.batch - opened.batch >= policy.TRACING_BATCHES:
            return True
        is_blind = not self._meter.counts and boundary.batch == boundary.expected_batches
        return is_blind or self._meter.cost_with_another() > self._allowance

    def _open(self, boundary: Boundary, *, seconds: float) -> None:
        # Known to be open before it is: what breaks into the opening must not leave it on for good.
        self._opened = boundary
        self._closes_at = boundary.time_s + seconds
        self._window = self._make()
        self._meter.enter(is_ours=self._window.open() or self._whole is not None)

    def _leave(self, boundary: Boundary, top: int = _MOST_LINES) -> tuple[list[Site], int]:
        window = self._window
        assert window is not None
        self._meter.pause()
        seen = window.close(top=top, project_root=self._project_root)
        # Open until it is closed: what breaks in has it closed at the next boundary.
        self._window, self._opened = None, None
        self._costs.spend(ACTIVITY, self._meter.leave())
        if self._mode != "always":
            self._meter.stop()
        return seen

    def _go_on(self, boundary: Boundary) -> None:
        """The program continues: limit the cost of tracing to what is left."""
        self._meter.depart(boundary)
        if self._window is not None and self._mode == "window":
            self._meter.limit(self._allowance, self._window.cut)


class _OverheadMeter:
    def __init__(self, costs: Costs, counter: AllocationCounter) -> None:
        self._counter = counter
        self.pause = counter.disarm
        """Keeps tracing from being cut while a boundary is measured or a window closed."""
        self._pace = Pace(lambda: costs.total)
        self._blocks: dict[PaceUnit, deque[float]] = {}
        self._per_second: float | None = None
        self._cost: TracingCost | None = None
        self._from = 0
        self._alive = 0
        self._cut_at: int | None = None
        self._is_ours = False
        self._stretches = 0
        self.is_on = False
        self.counts = False

    def start(self, boundary: Boundary) -> None:
        if not self.is_on:
            self.is_on = True
            self._cost = self._counter.cost()
            self.counts = self._counter.start()

    def stop(self) -> None:
        if self.is_on:
            self.is_on = self.counts = False
            self._counter.stop()

    def arrive(self, boundary: Boundary) -> None:
        self._counter.disarm()
        counted, cut_at = self._counter.counted(), self._cut_at
        blocks = counted - self._from if self.counts else None
        traced = blocks if blocks is None or cut_at is None else max(cut_at - self._from, 0)
        stretch = self._pace.end(boundary, traced)
        if stretch is None:
            return
        self._stretches += 1
        unit = stretch.unit
        if blocks is not None and stretch.seconds >= policy.TIME_WAKES_SECONDS:
            self._per_second = blocks / stretch.seconds
        has_room = unit in self._blocks or len(self._blocks) < policy.TRACING_PHASES_KEPT
        if blocks is not None and has_room:
            known = self._blocks.setdefault(unit, deque(maxlen=policy.TRACING_PACES_KEPT))
            known.append(blocks / stretch.units)

    def depart(self, boundary: Boundary) -> None:
        self._pace.begin(boundary)
        if self.counts:
            self._from = self._counter.counted()

    def foretell(self, boundary: Boundary) -> float | None:
        """Return the seconds that tracing would add until the next boundary; None if unknown."""
        unit = PaceUnit(boundary.phase, "batch")
        usual = self._pace.usual(unit)
        if usual is None and boundary.kind is BoundaryKind.PHASE_BEGIN:
            whole = PaceUnit(boundary.phase, "whole")
            unit, usual = whole, self._pace.usual(whole)
        if not self.counts:
            return None if usual is None else policy.TRACING_ASSUMED_SLOWDOWN * usual
        blocks = self._blocks.get(unit)
        if not blocks or (usual is None and unit.part == "batch"):
            return None
        return policy.TRACING_SAFETY * self._per_block * median(blocks)

    def foretell_second(self) -> float | None:
        if not self.counts:
            return policy.TRACING_ASSUMED_SLOWDOWN
        if self._per_second is None:
            return None
        return policy.TRACING_SAFETY * self._per_block * self._per_second

    def enter(self, *, is_ours: bool) -> None:
        self._is_ours = is_ours
        self._alive = self._counter.alive()
        self._stretches = 0
        self._cut_at = None
        self._pace.enter()

    def leave(self) -> float:
        """The window is closed; return the seconds that it has added to the program's."""
        cost = self._slowdown()
        self._cut_at = None
        self._pace.leave()
        return cost

    def cost_now(self) -> float:
        """Return what the window comes to if it is closed here, and all that lives is read."""
        per_kept = 0.0 if self._cost is None else self._cost.per_kept
        return self._slowdown() + max(self._counter.alive() - self._alive, 0) * per_kept

    def cost_with_another(self) -> float:
        """Return what it comes to at the next boundary: there is then more to read as well."""
        cost = self.cost_now()
        return cost + cost / max(self._stretches, 1)

    def limit(self, allowance: float, cut: Callable[[], object]) -> None:
        if self.counts and self._is_ours and self._cost is not None:
            left = max(allowance - self._slowdown(), 0.0)
            each = max(self._cost.per_block, 1e-9)
            self._counter.arm(int(left / each), partial(self._cut, cut))

    def _cut(self, cut: Callable[[], object]) -> None:
        cut()
        self._cut_at = self._counter.counted()

    @property
    def _per_block(self) -> float:
        return 0.0 if self._cost is None else self._cost.per_block

    def _slowdown(self) -> float:
        return self._pace.slowdown(self._estimated) if self._is_ours else 0.0

    def _estimated(self, stretch: PaceStretch) -> float:
        if stretch.blocks is not None:
            return stretch.blocks * self._per_block
        return stretch.assumed_slowdown


def allowed_seconds(budget: float, now: float) -> float:
    """Return the seconds that windows of one kind may have taken by now."""
    return max(policy.TRACING_FLOOR_SECONDS, policy.TRACING_SHARE * budget * now)


class PaceUnit(NamedTuple):
    """A piece of work that comes again."""

    phase: str
    part: str
    """``batch``, ``rest``, ``whole``, or empty where it compares with nothing."""


class PaceStretch(NamedTuple):
    """What the program did between two boundaries."""

    unit: PaceUnit
    units: int
    seconds: float
    """The program's own."""
    blocks: int | None
    """Blocks of memory that Python handed out meanwhile, where they were counted."""

    @property
    def pace(self) -> float:
        """Seconds for each unit."""
        return self.seconds / self.units

    @property
    def assumed_slowdown(self) -> float:
        """Seconds that a window is taken to have added, where nothing tells how many."""
        slowdown = policy.TRACING_ASSUMED_SLOWDOWN
        return self.seconds * slowdown / (1 + slowdown)


class Pace:
    """Learns how fast the program is, and by how much it is slower inside a window."""

    def __init__(self, spent: Callable[[], float] = lambda: 0.0) -> None:
        """``spent`` returns the seconds that leakscope itself has taken so far."""
        self._spent = spent
        self._from: tuple[Boundary, float] | None = None
        self._usual: dict[PaceUnit, deque[float]] = {}
        self._inside: dict[PaceUnit, list[PaceStretch]] | None = None
        """What was done in the window that is open."""

    def begin(self, boundary: Boundary) -> None:
        """The program continues from here."""
        self._from = (boundary, self._spent())

    def end(self, boundary: Boundary, blocks: int | None = None) -> PaceStretch | None:
        """Learn from what the program did up to here; return it, unless nothing was begun."""
        if self._from is None:
            return None
        (begun, spent), self._from = self._from, None
        seconds = boundary.time_s - begun.time_s - (self._spent() - spent)
        unit, units = _unit_of(begun, boundary)
        stretch = PaceStretch(unit, units, max(seconds, 0.0), blocks)
        if self._inside is not None:
            self._inside.setdefault(unit, []).append(stretch)
        elif unit.part and (unit in self._usual or len(self._usual) < policy.TRACING_PHASES_KEPT):
            paces = self._usual.setdefault(unit, deque(maxlen=policy.TRACING_PACES_KEPT))
            paces.append(stretch.pace)
        return stretch

    def usual(self, unit: PaceUnit) -> float | None:
        """Return the seconds that a unit takes outside a window; None where that isn't known."""
        paces = self._usual.get(unit, ())
        return median(paces) if len(paces) >= policy.TRACING_PILOT else None

    def enter(self) -> None:
        """A window opens."""
        self._inside = {}

    def leave(self) -> None:
        """The window is closed."""
        self._inside = None

    def slowdown(self, otherwise: Callable[[PaceStretch], float]) -> float:
        """Return the seconds that the window has cost the program so far.

        Of units that were done several times both inside and before the medians tell; of others
        ``otherwise``.
        """
        cost = 0.0
        for unit, stretches in (self._inside or {}).items():
            usual = self.usual(unit)
            if usual is None or len(stretches) < policy.TRACING_PILOT:
                cost += sum(map(otherwise, stretches))
            else:
                units = sum(stretch.units for stretch in stretches)
                cost += units * (median(stretch.pace for stretch in stretches) - usual)
        return max(cost, 0.0)


def _unit_of(begun: Boundary, ended: Boundary) -> tuple[PaceUnit, int]:
    same = begun.phase == ended.phase and begun.occurrence == ended.occurrence
    batches = ended.batch - begun.batch
    if same and batches > 0:
        return PaceUnit(ended.phase, "batch"), batches
    if same and ended.kind is BoundaryKind.PHASE_END:
        whole = begun.kind is BoundaryKind.PHASE_BEGIN
        return PaceUnit(ended.phase, "whole" if whole else "rest"), 1
    return PaceUnit(ended.phase, ""), 1
