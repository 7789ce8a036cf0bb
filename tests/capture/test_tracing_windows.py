"""What a window of tracing may cost: foretold by counting, measured while it is open, and ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from fake_session import FakeClock, FakeWindow

from leakscope.capture.budget import Costs
from leakscope.capture.policy import (
    TRACING_BATCHES,
    TRACING_BY_TIME_SECONDS,
    TRACING_FLOOR_SECONDS,
    TRACING_SHARE,
    TRACING_WINDOWS,
)
from leakscope.capture.schedule import GrowthWatch
from leakscope.capture.tracing import AllocationWindows, NoCounter
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.record import AllocationRecord

BUDGET = 0.02


@dataclass
class Cost:
    per_block: float = 1e-6
    per_kept: float = 0.0


class FakeCounter:
    """Counts what the test allocates, and calls what is armed as soon as the limit is reached."""

    def __init__(self) -> None:
        self.blocks = self.limit = 0
        self.is_counting = False
        self.function: Callable[[], object] | None = None
        self.tracing_cost: Cost | None = Cost()

    def start(self) -> bool:
        self.is_counting = True
        return True

    def stop(self) -> None:
        self.is_counting = False
        self.function = None

    def counted(self) -> int:
        return self.blocks

    def arm(self, more: int, function: Callable[[], object]) -> None:
        self.limit, self.function = self.blocks + more, function

    def disarm(self) -> None:
        self.function = None

    def alive(self) -> int:
        return 0

    def cost(self) -> Cost | None:
        return self.tracing_cost

    def allocate(self, blocks: int) -> int:
        """Return how many of them were handed out before the limit."""
        before, self.blocks = self.blocks, self.blocks + blocks
        if self.function is None or self.blocks < self.limit:
            return blocks
        function, self.function = self.function, None
        function()
        return max(self.limit - before, 0)


class Program:
    """A training on a clock of its own that tracing slows down by what it allocates."""

    def __init__(
        self, counter: FakeCounter | None, *, per_block: float = 1e-6, mode: str = "window"
    ) -> None:
        FakeWindow.opened = []
        self.clock, self.costs = FakeClock(), Costs()
        self.counter = counter
        self.per_block = per_block
        self.slowed = 0.0
        self.records: list[AllocationRecord] = []
        self.notes: list[str] = []
        self.opened_at: list[float] = []
        self._index = self._batch = self._occurrence = 0
        self._begun = self.clock.now
        given: FakeCounter | NoCounter = NoCounter() if counter is None else counter
        self.windows = AllocationWindows(
            mode,
            FakeWindow,
            GrowthWatch(),
            self.costs,
            given,
            lambda slug, _: self.notes.append(slug),
            BUDGET,
            "",
        )
        self.windows._wanted = "train"  # it grows there

    @property
    def is_traced(self) -> bool:
        return any(window.is_open and not window.is_cut for window in FakeWindow.opened)

    def step(self, seconds: float, blocks: int, *, measured: bool = True) -> None:
        """A step that takes so long untraced, and its boundary."""
        self._work(seconds, blocks)
        self._index += 1
        self._batch += 1
        self.boundary(BoundaryKind.STEP, measured=measured)

    def serve(self, seconds: float, blocks: int) -> None:
        """Work without boundaries of its own, and the boundary that time makes after it."""
        due = self.windows.closes_at_time
        if due is not None:
            hastened = min(due - (self.clock.now - self._begun), seconds)
            blocks, seconds = int(blocks * hastened / seconds), hastened
        self._work(seconds, blocks)
        self._index += 1
        self.boundary(BoundaryKind.TIME)

    def _work(self, seconds: float, blocks: int) -> None:
        traced = self.is_traced
        allocated = blocks if self.counter is None else self.counter.allocate(blocks)
        slower = self.per_block * allocated if traced else 0.0
        self.slowed += slower
        self.clock.now += seconds + slower

    def again(self) -> None:
        """The phase ends and comes again, and nobody hears of it."""
        self._batch = 0
        self._occurrence += 1

    def boundary(self, kind: BoundaryKind, *, measured: bool = True) -> None:
        boundary = Boundary(
            index=self._index,
            kind=kind,
            time_s=self.clock.now - self._begun,
            phase="train",
            occurrence=self._occurrence,
            batch=self._batch,
        )
        closes = self.windows.closes_at(boundary)
        if not measured and not closes:
            return
        self.windows.closes_at(boundary)
        if closes:
            self.records.append(self.windows.close(boundary))
        opened = len(FakeWindow.opened)
        self.windows.open_here(boundary)
        if len(FakeWindow.opened) > opened:
            self.opened_at.append(boundary.time_s)

    @property
    def charged(self) -> float:
        return self.costs.seconds.get("tracemalloc", 0.0)


def test_a_window_opens_after_some_counted_steps_and_lasts_some_batches() -> None:
    program = Program(FakeCounter())
    for _ in range(20):
        program.step(0.01, 1000)
    assert len(program.records) == 1
    record = program.records[0]
    assert record.last_boundary - record.first_boundary == TRACING_BATCHES
    assert record.first_boundary >= 3
    assert not program.windows.listens


@pytest.mark.parametrize("per_second", [1_000, 100_000, 400_000])
def test_where_boundaries_come_by_time_a_window_lasts_as_long_as_it_can_be_afforded(
    per_second: int,
) -> None:
    program = Program(FakeCounter())
    for _ in range(6):
        program.serve(1.0, per_second)
    assert len(program.records) >= 1
    assert program.notes == []
    assert program.slowed <= TRACING_FLOOR_SECONDS
    first = program.records[0]
    assert first.last_boundary == first.first_boundary + 1
    assert program.clock.now - 1000 < 6 - (1 - TRACING_BY_TIME_SECONDS) + program.slowed


def test_no_window_opens_by_time_where_the_shortest_would_cost_too_much() -> None:
    program = Program(FakeCounter(), per_block=1e-6)
    for _ in range(6):
        program.serve(1.0, 5_000_000)
    assert FakeWindow.opened == []
    assert program.charged == 0.0


def test_no_window_opens_where_one_step_would_cost_more_than_the_share() -> None:
    program = Program(FakeCounter())
    for _ in range(40):
        program.step(0.2, 500_000)  # half a second more, each
    assert FakeWindow.opened == []
    assert program.charged == 0.0
    assert not program.windows.listens


def test_it_opens_once_the_run_is_long_enough_to_pay_for_it() -> None:
    program = Program(FakeCounter())
    while not program.opened_at and program.clock.now - 1000 < 1000:
        program.step(0.2, 500_000)
    assert program.opened_at
    assert program.opened_at[0] * TRACING_SHARE * BUDGET >= 2 * 0.5


def test_it_closes_when_its_share_is_spent() -> None:
    program = Program(FakeCounter())
    for _ in range(30):
        program.step(0.2, 40_000)
    assert program.records
    record = program.records[0]
    assert 1 <= record.last_boundary - record.first_boundary < TRACING_BATCHES
    assert program.slowed <= TRACING_FLOOR_SECONDS


def test_what_it_costs_is_measured_against_the_pace_before_it() -> None:
    program = Program(FakeCounter(), per_block=3e-6)  # three times as dear as was calibrated
    for _ in range(30):
        program.step(0.05, 4000)
    assert program.records
    assert program.charged == pytest.approx(program.slowed, rel=0.05)


def test_steps_of_uneven_length_are_not_taken_for_a_slowdown() -> None:
    program = Program(FakeCounter(), per_block=0.0)
    for n in range(40):
        program.step(0.3 if n % 4 == 0 else 0.01, 1000)
    assert program.records[0].last_boundary - program.records[0].first_boundary == TRACING_BATCHES
    assert program.charged <= 0.01


def test_a_step_that_allocates_far_more_is_not_traced_to_its_end() -> None:
    program = Program(FakeCounter())
    for _ in range(6):
        program.step(0.01, 1000)
    assert program.is_traced
    program.step(5.0, 50_000_000)
    assert not program.is_traced
    assert program.slowed <= TRACING_FLOOR_SECONDS
    assert program.charged <= TRACING_FLOOR_SECONDS
    assert program.records == []
    assert program.notes == ["tracing-cut"]
    for _ in range(50):
        program.step(0.01, 1000)
    assert len(FakeWindow.opened) <= TRACING_WINDOWS


def test_what_leakscope_allocates_at_a_boundary_ends_no_window() -> None:
    program = Program(counter := FakeCounter())
    for _ in range(6):
        program.step(0.01, 1000)
    boundary = Boundary(
        index=99, kind=BoundaryKind.STEP, time_s=0.08, phase="train", batch=program._batch + 1
    )
    program.windows.closes_at(boundary)
    program.windows.closes_at(boundary)  # it is measured
    counter.allocate(50_000_000)
    program.windows.open_here(boundary)
    assert program.is_traced
    assert counter.function is not None


def test_the_programs_own_tracing_makes_no_window_dear() -> None:
    counter = FakeCounter()
    counter.tracing_cost = None
    program = Program(counter, per_block=0.0)
    for _ in range(20):
        program.step(0.2, 500_000)
    assert len(program.records) == 1
    assert program.charged == 0.0


def test_without_a_counter_the_pace_alone_decides() -> None:
    quick = Program(None)
    for _ in range(20):
        quick.step(0.01, 0)
    assert quick.records
    slow = Program(None)
    for _ in range(20):
        slow.step(0.5, 0)
    assert slow.records == []


def test_steps_that_are_not_measured_are_heard_of_while_it_learns() -> None:
    program = Program(FakeCounter())
    program.step(0.01, 1000)
    assert program.windows.listens
    for _ in range(5):
        program.step(0.01, 1000, measured=False)
    program.step(0.01, 1000)
    assert program.is_traced


def test_a_phase_whose_end_was_not_heard_of_ends_it_when_it_comes_again() -> None:
    program = Program(FakeCounter())
    for _ in range(6):
        program.step(0.01, 1000)
    assert program.is_traced
    program.again()
    program.step(0.01, 1000)
    assert len(program.records) == 1
    assert not program.is_traced


def test_all_windows_together_keep_to_the_share() -> None:
    program = Program(FakeCounter())
    for _ in range(2000):
        program.windows._wanted = "train"
        program.step(0.1, 30_000)
    assert program.slowed <= max(TRACING_FLOOR_SECONDS, TRACING_SHARE * BUDGET * 200) * 1.1


def test_a_window_over_everything_is_charged_by_what_was_counted() -> None:
    counter = FakeCounter()
    program = Program(counter, mode="always")
    program.windows.begin(Boundary(index=0, kind=BoundaryKind.RUN_BEGIN, time_s=0.0))
    program._index = 1
    program.boundary(BoundaryKind.PHASE_BEGIN)
    for _ in range(400):
        program.step(0.1, 10_000)
    program.windows.end(Boundary(index=999, kind=BoundaryKind.RUN_END, time_s=50.0))
    assert program.charged == pytest.approx(program.slowed, rel=0.15)
    assert not counter.is_counting
