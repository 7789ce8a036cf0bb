"""What a session writes, in which order, and what becomes of its own faults."""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
from itertools import pairwise
from typing import ClassVar

import msgspec
import pytest
from fake_session import FakeSession, FakeWindow

from leakscope.capture.session import current_session
from leakscope.capture.unobservable import UnobservableState
from leakscope.model import gauge
from leakscope.model.boundary import BoundaryKind as Kind
from leakscope.model.census import Census, CensusScope
from leakscope.model.record import (
    AllocationRecord,
    BoundaryRecord,
    CensusRecord,
    EndRecord,
    ErrorRecord,
    OverheadRecord,
    RegistryEntriesRecord,
    SourceRecord,
)
from leakscope.probes.interpreter import RegistriesProbe


@pytest.fixture
def run(monkeypatch):
    monkeypatch.delenv("LEAKSCOPE_STRICT", raising=False)
    run = FakeSession()
    yield run
    run.close()


class TestRecords:
    def test_begin_and_end(self, run):
        run.close()
        assert [b.kind for b in run.writer.boundaries] == [Kind.RUN_BEGIN, Kind.RUN_END]
        assert isinstance(run.writer.records[-1], EndRecord)
        assert run.writer.records[-1].status == "completed"
        assert run.writer.closed

    def test_boundaries_are_counted_in_order(self, run):
        run.train_pass(20)
        run.close()
        indices = [b.index for b in run.writer.boundaries]
        assert indices == list(range(24))
        times = [b.time_s for b in run.writer.boundaries]
        assert times == sorted(times)

    def test_entries_of_registries_are_written_where_they_change_without_secrets(self, run):
        class Named(RegistriesProbe):
            names: ClassVar[dict[str, list[str]]] = {}

            def latest(self):
                return dict(self.names)

        run.session._measuring._registries = [Named()]
        run.train_pass(20)
        Named.names = {"loggers": ["run.1", "https://hunter2@example.org/run.git"]}
        for _ in range(4):
            run.train_pass(40)
        run.close()
        (record,) = [r for r in run.writer.records if isinstance(r, RegistryEntriesRecord)]
        assert record.entries["loggers"][0] == "run.1"
        assert "hunter2" not in str(record)

    def test_a_census_is_written_before_its_boundary(self, run):
        run.train_pass(5)
        written = [r for r in run.writer.records if isinstance(r, (CensusRecord, BoundaryRecord))]
        for record, following in pairwise(written):
            if isinstance(record, CensusRecord):
                assert following.boundary.index == record.boundary

    def test_own_memory_is_a_gauge_at_censuses(self, run):
        run.train_pass(3)
        owns = [r.gauges.get(gauge.OWN) for r in run.writer.of(BoundaryRecord)]
        assert any(own for own in owns)

    def test_slow_gauges_are_read_seldom(self, run):
        run.slow.seconds = 0.005
        run.train_pass(1000)
        assert run.fast.reads > 3 * run.slow.reads

    def test_a_source_file_is_kept_once(self, run, tmp_path):
        source = tmp_path / "train.py"
        source.write_text("history.append(loss)\n")
        run.taker.files = {str(source), str(tmp_path / "gone.py")}
        run.train_pass(5)
        run.train_pass(5)
        assert [(r.path, r.text) for r in run.writer.of(SourceRecord)] == [
            (str(source), "history.append(loss)\n")
        ]

    def test_a_huge_source_file_is_left_out(self, run, tmp_path):
        source = tmp_path / "train.py"
        source.write_text("#" * 400_001)
        run.taker.files = {str(source)}
        run.train_pass(5)
        assert run.writer.of(SourceRecord) == []

    def test_a_mark_carries_its_name_and_the_open_phase(self, run):
        with_phase = run.session.gate.dispatch(run.session.tracker.phase_begin, "warmup")
        run.session.boundary(Kind.MARK, label="loaded")
        run.session.gate.dispatch(run.session.tracker.phase_end, with_phase)
        (mark,) = [b for b in run.writer.boundaries if b.kind is Kind.MARK]
        assert (mark.label, mark.phase) == ("loaded", "warmup")

    def test_nothing_is_written_after_the_end(self, run):
        run.close()
        count = len(run.writer.records)
        run.train_pass(3)
        run.session.boundary(Kind.MARK, label="late")
        run.close()
        assert len(run.writer.records) == count


class TestFaults:
    def test_a_failing_census_costs_the_census_alone(self, run):
        run.taker.error = RuntimeError("broken")
        run.train_pass(30)
        errors = run.writer.of(ErrorRecord)
        assert [error.disabled for error in errors] == [False, False, True]
        assert {error.where for error in errors} == {"census"}
        assert "RuntimeError: broken" in errors[0].message
        assert len([b for b in run.writer.boundaries if b.kind is Kind.STEP]) == 30

    def test_memory_error_is_contained(self, run):
        run.taker.error = MemoryError()
        run.train_pass(3)
        assert run.writer.of(ErrorRecord)[0].message.startswith("MemoryError")

    def test_a_keyboard_interrupt_passes(self, run):
        def interrupted() -> dict[str, int]:
            raise KeyboardInterrupt

        run.fast.read = interrupted
        with pytest.raises(KeyboardInterrupt):
            run.train_pass(3)
        del run.fast.read
        run.train_pass(3)
        assert any(b.kind is Kind.STEP for b in run.writer.boundaries)

    def test_a_failing_tracker_is_switched_off(self, run):
        def broken() -> None:
            raise ValueError("no such phase")

        for _ in range(5):
            run.session.gate.dispatch(broken)
        assert len(run.writer.of(ErrorRecord)) == 3
        assert not run.session.gate.is_open

    def test_a_failing_writer_is_no_fault_of_the_training(self, run):
        def full(record, *, sync=False):
            raise OSError(28, "No space left on device")

        run.writer.write = full
        run.train_pass(3)

    def test_strict_mode_shows_our_own_faults(self, monkeypatch):
        monkeypatch.setenv("LEAKSCOPE_STRICT", "1")
        run = FakeSession()
        run.taker.error = RuntimeError("broken")
        with pytest.raises(RuntimeError, match="broken"):
            run.train_pass(3)
        run.taker.error = None
        run.close()


class TestTurnedAway:
    def test_events_inside_an_event(self, run):
        def census_that_trains() -> dict[str, int]:
            run.session.gate.dispatch(run.session.tracker.optimizer_step, 9)
            return {}

        run.fast.read = census_that_trains
        run.train_pass(5)
        assert run.session.tracker.step == 5
        assert run.session.gate.turned_away > 0

    def test_events_of_other_threads(self, run):
        run.train_pass(2)
        before = len(run.writer.records)
        thread = threading.Thread(target=run.train_pass, args=(5,))
        thread.start()
        thread.join()
        assert len(run.writer.records) == before
        assert run.session.tracker.step == 2

    def test_a_dropped_loader_is_heard_after_the_event_that_dropped_it(self, run):
        gate, seen = run.session.gate, []

        def outer() -> None:
            gate.dispatch_deferred(seen.append, "late")
            seen.append("outer")

        gate.dispatch(outer)
        assert seen == ["outer", "late"]

    def test_several_that_come_late_are_each_heard_once(self, run):
        gate, seen = run.session.gate, []

        def outer() -> None:
            for number in range(3):
                gate.dispatch_deferred(seen.append, number)

        gate.dispatch(outer)
        assert seen == [0, 1, 2]


def test_a_forked_child_is_deaf_and_writes_nothing(run):
    run.train_pass(2)
    count = run.writer.count
    pid = os.fork()
    if pid == 0:
        run.train_pass(5)
        run.close()
        alive = current_session() is not None or run.writer.count != count
        os._exit(int(alive))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    run.train_pass(1)
    assert run.writer.count > count


class TestAllocationWindows:
    @staticmethod
    def growing_run(**options):
        run = FakeSession(tracemalloc="window", **options)
        size = iter(range(0, 10**12, 10**6))
        run.taker.sizes = lambda: {"history": next(size)}
        return run

    def test_open_once_something_grows_and_close_soon(self):
        run = self.growing_run()
        for _ in range(10):
            run.train_pass(50, 0.02)
        records = run.writer.of(AllocationRecord)
        assert 1 <= len(records) <= 3
        assert len(FakeWindow.opened) == len(records)
        boundaries = {b.index: b for b in run.writer.boundaries}
        for record in records:
            first, last = boundaries[record.first_boundary], boundaries[record.last_boundary]
            assert last.time_s - first.time_s < 1.0
            assert record.sites

    def test_a_census_is_taken_while_it_is_still_open(self):
        run = self.growing_run()
        for _ in range(10):
            run.train_pass(50, 0.02)
        taken = {record.boundary for record in run.writer.of(CensusRecord)}
        assert all(r.last_boundary in taken for r in run.writer.of(AllocationRecord))

    @pytest.mark.parametrize("rises", [True, False])
    def test_that_census_is_full_where_what_rises_has_no_name(self, rises):
        run = self.growing_run(whole=0.05, resumed=0.01)
        sizes = iter(range(0, 10**12, 10**6))
        for _ in range(24):
            run.taker.elsewhere_bytes = next(sizes) if rises else 0
            run.train_pass(50, 0.02)
        scopes = {r.boundary: r.census.scope for r in run.writer.of(CensusRecord)}
        closed = [scopes[r.last_boundary] for r in run.writer.of(AllocationRecord)]
        assert closed
        assert (closed[-1] is CensusScope.FULL) is rises, closed

    def test_stay_shut_where_nothing_grows(self):
        run = FakeSession(tracemalloc="window")
        run.taker.sizes = lambda: {"history": 10**6}
        for _ in range(10):
            run.train_pass(50, 0.02)
        assert FakeWindow.opened == []

    def test_stay_shut_when_they_are_off(self):
        run = self.growing_run()
        run.session._windows._mode = "off"
        for _ in range(10):
            run.train_pass(50, 0.02)
        assert FakeWindow.opened == []

    def test_cost_is_accounted_for(self):
        run = self.growing_run()
        for _ in range(10):
            run.train_pass(50, 0.02)
        run.close()
        assert "tracemalloc" in run.writer.of(OverheadRecord)[-1].seconds

    def test_a_boundary_that_is_put_off_ends_none(self):
        run = self.growing_run()
        visited: list[float] = []

        def where() -> UnobservableState | None:
            """A second from where the first window is open at a boundary."""
            if run.session._windows.is_open:
                visited.append(run.clock.now)
            is_inside = bool(visited) and run.clock.now < visited[0] + 1.0
            return UnobservableState("torch.jit.trace", may_last=False) if is_inside else None

        run.session._put_off._where = where
        for _ in range(10):
            run.train_pass(50, 0.02)
        record = run.writer.of(AllocationRecord)[0]
        at = {b.index: b.time_s for b in run.writer.boundaries}
        assert at[record.last_boundary] - at[record.first_boundary] >= 1.0
        assert not [i for i in at if record.first_boundary < i < record.last_boundary]

    def test_always_covers_everything(self):
        run = FakeSession(tracemalloc="always")
        for _ in range(30):
            run.train_pass(50, 0.1)
        run.close()
        records = run.writer.of(AllocationRecord)
        assert len(records) >= 4
        assert records[-1].first_boundary == 0
        assert not any(window.is_open for window in FakeWindow.opened)


def test_own_memory_does_not_grow_over_a_hundred_thousand_boundaries():
    run = FakeSession(keep=False, tracemalloc="window")
    run.taker.sizes = lambda: {f"row {n}": 1000 for n in range(10)}

    def train(passes: int) -> None:
        for number in range(passes):
            run.train_pass(45, 0.001)
            run.validation_pass(3, 0.001)
            run.session.boundary(Kind.MARK, label=f"mark {number}")

    gc.disable()
    tracemalloc.start()
    train(600)
    before = tracemalloc.take_snapshot()
    train(1500)
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    gc.enable()
    ours = tracemalloc.Filter(True, "*/leakscope/capture/*")
    difference = after.filter_traces([ours]).compare_to(before.filter_traces([ours]), "lineno")
    grown = sum(statistic.size_diff for statistic in difference)
    assert run.session._index > 100_000
    assert grown < 30_000, difference[:5]


@pytest.mark.parametrize("is_collected", [True, False])
def test_memory_is_read_again_where_the_collector_ran_before_the_census(
    is_collected: bool,
) -> None:
    run = FakeSession()
    state = {gauge.RSS: 9 << 20, gauge.GC_COLLECTIONS: 3}
    run.fast.name, run.fast.gauges = "process", lambda: dict(state)
    take = run.taker.take

    def collected(scope: CensusScope, unwound=()) -> Census:
        before = state[gauge.GC_COLLECTIONS]
        state.update({gauge.RSS: 5 << 20, gauge.GC_COLLECTIONS: before + is_collected})
        census = take(scope, unwound)
        return msgspec.structs.replace(census, collections=state[gauge.GC_COLLECTIONS])

    run.taker.take = collected
    run.train_pass(3)
    run.close()
    records = {record.boundary.index: record for record in run.writer.of(BoundaryRecord)}
    first = min(record.boundary for record in run.writer.of(CensusRecord))
    assert records[first].gauges[gauge.RSS] == (5 << 20 if is_collected else 9 << 20)
