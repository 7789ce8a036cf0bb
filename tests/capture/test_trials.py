"""Where the cleaning calls are tried, and what is written down of it."""

from __future__ import annotations

import gc

import pytest
from fake_session import FakeClock, FakeSession

from leakscope.capture.budget import Costs
from leakscope.capture.options import SessionOptions
from leakscope.capture.requests import ACTIVITY, AT_ONCE, Trials
from leakscope.cleanup.clearing import ClearedMemory, ClearedStep
from leakscope.model.boundary import Boundary
from leakscope.model.boundary import BoundaryKind as Kind
from leakscope.model.record import CleanupRecord, ErrorRecord


class Cleaner:
    """Takes as long as the test says, and counts."""

    def __init__(self, clock: FakeClock, seconds: float = 0.1) -> None:
        self.clock = clock
        self.seconds = seconds
        self.calls = 0

    def __call__(self) -> ClearedMemory:
        self.calls += 1
        self.clock.sleep(self.seconds)
        step = ClearedStep("gc.collect()", self.seconds, 7, 1000, 500)
        return ClearedMemory((step,), self.seconds, ("No GPU figures.",))


class Run:
    def __init__(self, *, seconds: float = 0.1, budget: float = 0.02) -> None:
        self.clock = FakeClock()
        self.costs = Costs()
        self.cleaner = Cleaner(self.clock, seconds)
        self.trials = Trials(
            self.costs,
            budget=budget,
            clock=self.clock,
            clear=self.cleaner,
            read=lambda: {"rss": 10},
        )
        self.index = 0

    def reach(self, kind: Kind = Kind.PHASE_END, phase: str = "train", label: str = ""):
        self.index += 1
        now = self.clock.now - 1000.0
        boundary = Boundary(index=self.index, kind=kind, time_s=now, phase=phase, label=label)
        return self.trials.at(boundary)


def test_the_first_ends_of_a_phase_are_tried_and_then_ever_fewer():
    run = Run(seconds=1e-6)
    tried = []
    for number in range(1, 41):
        run.clock.sleep(100.0)
        if run.reach() is not None:
            tried.append(number)
    assert tried == [1, 2, 3, 6, 12, 24]


def test_each_phase_has_its_own_turns():
    run = Run(seconds=1e-6)
    run.clock.sleep(1000.0)
    assert [run.reach(phase=p) is not None for p in ("train", "validation") * 3] == [True] * 6


@pytest.mark.parametrize("kind", [Kind.STEP, Kind.BATCH, Kind.PHASE_BEGIN, Kind.RUN_END])
def test_nothing_is_tried_inside_a_step_or_before_work(kind):
    run = Run()
    assert run.reach(kind) is None
    assert run.cleaner.calls == 0


def test_a_users_mark_is_a_place_too():
    assert Run().reach(Kind.MARK, "", "after loading") is not None


def test_after_the_first_few_the_budget_must_have_paid():
    run = Run(seconds=0.4)
    for _ in range(30):
        run.clock.sleep(1.0)
        run.reach(Kind.MARK, "", f"mark {run.index}")
    assert run.cleaner.calls == AT_ONCE
    run.clock.sleep(1000.0)
    assert run.reach() is not None
    assert run.costs.seconds[ACTIVITY] == pytest.approx(0.4 * (AT_ONCE + 1))


def test_dear_trials_are_fewer_from_the_start():
    run = Run(seconds=5.0)
    for _ in range(10):
        run.clock.sleep(1.0)
        run.reach()
    assert run.cleaner.calls == 1
    run.clock.sleep(1000.0)
    run.reach()
    assert run.cleaner.calls == 2


def test_any_number_of_marks_is_bounded():
    run = Run(seconds=1e-9)
    run.clock.sleep(1e6)
    for number in range(1000):
        run.reach(Kind.MARK, "", f"mark {number}")
    assert len(run.trials._seen) <= 64


def test_what_each_call_changed_is_recorded():
    record = Run().reach()
    assert record == CleanupRecord(
        boundary=1, steps=record.steps, before={"rss": 10}, after={"rss": 10},
        remarks=["No GPU figures."],
    )  # fmt: skip
    (step,) = record.steps
    assert (step.call, step.objects, step.host_freed, step.host_returned) == (
        "gc.collect()", 7, 1000, 500,
    )  # fmt: skip


def test_it_is_off_unless_it_was_requested():
    assert SessionOptions().probe_cleanup is False
    assert SessionOptions.from_json(SessionOptions(probe_cleanup=True).to_json()).probe_cleanup
    run = FakeSession()
    run.train_pass(5)
    run.close()
    assert run.writer.of(CleanupRecord) == []


def test_a_session_writes_the_trial_after_its_boundary(monkeypatch):
    monkeypatch.delenv("LEAKSCOPE_STRICT", raising=False)
    run = FakeSession(probe_cleanup=True)
    run.session._trials._clear = Cleaner(run.clock)
    run.train_pass(5)
    run.close()
    (record,) = run.writer.of(CleanupRecord)
    ended = [b.index for b in run.writer.boundaries if b.kind is Kind.PHASE_END]
    assert record.boundary == ended[0]


def test_a_fault_of_a_trial_costs_only_the_trial(monkeypatch):
    monkeypatch.delenv("LEAKSCOPE_STRICT", raising=False)
    run = FakeSession(probe_cleanup=True)

    def broken() -> ClearedMemory:
        raise RuntimeError("trimmed too much")

    run.session._trials._clear = broken
    run.train_pass(5)
    run.train_pass(5)
    run.close()
    assert run.writer.of(CleanupRecord) == []
    assert {fault.where for fault in run.writer.of(ErrorRecord)} == {"cleanup"}
    assert run.writer.boundaries[-1].kind is Kind.RUN_END


def test_the_real_calls_free_a_real_circle():
    run = Run()
    trials = Trials(run.costs, budget=0.02, clock=run.clock)
    circle = [bytearray(20 << 20)]
    circle.append(circle)
    gc.disable()
    try:
        del circle
        record = trials.at(Boundary(index=0, kind=Kind.PHASE_END, time_s=1.0, phase="train"))
    finally:
        gc.enable()
    assert record is not None
    collected = next(step for step in record.steps if step.call == "gc.collect()")
    assert collected.objects >= 1
    assert max(collected.host_freed or 0, collected.host_returned) >= 19 << 20
    assert record.before["rss"] > record.after["rss"]
