"""A signal asks for a census: taken at a boundary or at once, outside all series, never within."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest
from fake_session import FakeSession

from leakscope.capture.requests import PATIENCE_SECONDS
from leakscope.model.boundary import BoundaryKind
from leakscope.model.census import CensusScope
from leakscope.model.record import (
    BoundaryRecord,
    CensusRecord,
    OverheadRecord,
    SnapshotRecord,
    SnapshotSignalRecord,
)

USR1 = signal.SIGUSR1
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")


@pytest.fixture(autouse=True)
def handler_as_it_was() -> Iterator[None]:
    before = signal.getsignal(USR1)
    signal.signal(USR1, signal.SIG_DFL)
    yield
    signal.signal(USR1, before)


@pytest.fixture
def run() -> Iterator[FakeSession]:
    session = FakeSession(snapshot_signal="USR1")
    yield session
    session.close()


def ask() -> None:
    signal.raise_signal(USR1)


def snapshots(run: FakeSession) -> list[SnapshotRecord]:
    return run.writer.of(SnapshotRecord)


def listening(run: FakeSession) -> SnapshotSignalRecord:
    return run.writer.of(SnapshotSignalRecord)[-1]


class TestWhen:
    def test_the_census_is_taken_at_the_next_boundary(self, run: FakeSession) -> None:
        run.steps(3, 0.01)
        ask()
        assert snapshots(run) == []
        run.steps(1, 0.01)
        [taken] = snapshots(run)
        assert (taken.boundary.kind, taken.boundary.step) == (BoundaryKind.REQUEST, 4)
        assert taken.boundary.phase == "train"
        assert taken.census is not None
        assert not taken.at_once

    def test_it_is_taken_at_once_where_no_boundary_came_for_a_while(self, run: FakeSession) -> None:
        run.steps(3, 0.01)
        run.clock.sleep(PATIENCE_SECONDS)
        ask()
        [taken] = snapshots(run)
        assert taken.at_once
        run.steps(2, 0.01)
        assert len(snapshots(run)) == 1

    def test_a_later_signal_looks_again(self, run: FakeSession) -> None:
        run.steps(3, 0.01)
        ask()
        run.clock.sleep(PATIENCE_SECONDS)
        ask()
        [taken] = snapshots(run)
        assert taken.at_once

    def test_ten_signals_in_a_row_are_one_request(self, run: FakeSession) -> None:
        run.steps(3, 0.01)
        for _ in range(10):
            ask()
        run.steps(5, 0.01)
        assert len(snapshots(run)) == 1

    def test_a_loader_that_hangs_in_a_named_loop_is_looked_at(self, run: FakeSession) -> None:
        run.steps(3, 0.01)
        run.clock.sleep(PATIENCE_SECONDS)
        run.session.gate.muted(ask)
        assert [taken.at_once for taken in snapshots(run)] == [True]
        run.steps(1, 0.01)
        assert run.writer.boundaries[-1].step == 4

    def test_a_signal_after_the_end_is_harmless(self, run: FakeSession) -> None:
        run.session.close(status="completed", for_good=True)
        ask()
        assert snapshots(run) == []


class TestInTheMiddleOfSomething:
    def test_a_signal_within_our_own_census_waits_for_the_next_boundary(
        self, run: FakeSession
    ) -> None:
        run.clock.sleep(PATIENCE_SECONDS)
        run.taker.sizes = asking_once()
        run.steps(1, 10.0)
        written = [type(record) for record in run.writer.records]
        assert SnapshotRecord in written
        for place, kind in enumerate(written):
            if kind is CensusRecord:
                assert written[place + 1] is BoundaryRecord

    def test_a_signal_within_a_census_on_request_is_answered_by_it(self, run: FakeSession) -> None:
        run.steps(3, 0.01)
        run.taker.sizes = asking_once()
        run.clock.sleep(PATIENCE_SECONDS)
        ask()
        run.steps(5, 0.01)
        assert len(snapshots(run)) == 1

    def test_a_backward_pass_is_let_alone(self, run: FakeSession) -> None:
        torch = pytest.importorskip("torch")
        seen: list[int] = []

        def hook(_: object) -> None:
            ask()
            seen.append(len(snapshots(run)))

        run.steps(3, 0.01)
        run.clock.sleep(PATIENCE_SECONDS)
        x = torch.ones(3, requires_grad=True)
        x.register_hook(hook)
        x.sum().backward()
        assert seen == [0]
        run.steps(1, 0.01)
        assert len(snapshots(run)) == 1

    def test_training_in_another_thread_takes_it_at_its_own_boundary(
        self, run: FakeSession
    ) -> None:
        in_thread(lambda: run.steps(3, 0.01))
        run.clock.sleep(PATIENCE_SECONDS)
        ask()
        assert snapshots(run) == []
        run.session.gate.thread = 0  # the next one that is heard takes over
        in_thread(lambda: run.steps(1, 0.01))
        assert len(snapshots(run)) == 1

    def test_a_module_that_runs_in_another_thread_is_waited_for(self, run: FakeSession) -> None:
        torch = pytest.importorskip("torch")
        inside, leave = threading.Event(), threading.Event()

        class Slow(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: object) -> object:
                inside.set()
                leave.wait(30)
                return x

        run.steps(3, 0.01)
        run.clock.sleep(PATIENCE_SECONDS)
        thread = threading.Thread(target=Slow(), args=(1,))
        thread.start()
        inside.wait(30)
        ask()
        during = len(snapshots(run))
        leave.set()
        thread.join()
        assert during == 0
        ask()
        assert len(snapshots(run)) == 1

    def test_a_census_that_fails_is_a_fault_of_ours(self, run: FakeSession, monkeypatch) -> None:
        monkeypatch.setattr(run.session._guard, "strict", False)
        run.steps(3, 0.01)
        run.clock.sleep(PATIENCE_SECONDS)
        run.taker.error = RuntimeError("broken")
        ask()
        [snapshot] = snapshots(run)
        run.taker.error = None
        assert snapshot.census is None
        assert snapshot.no_census


class TestBesideTheSeries:
    def test_what_is_measured_at_boundaries_stays_the_same(self) -> None:
        def measured(*, asks: bool) -> list[tuple[object, ...]]:
            run = FakeSession(snapshot_signal="USR1")
            run.fast.seconds = run.slow.seconds = 0.0
            blank = msgspec.structs.replace(run.taker.take(CensusScope.FULL), sealed=0)
            run.taker.is_sealed = False
            run.taker.take_aside = lambda scope: blank  # type: ignore[method-assign]
            for _ in range(6):
                if asks:
                    ask()
                run.train_pass(20)
            run.close()
            assert len(snapshots(run)) == 6 * asks
            censuses = [(r.boundary, r.census.scope) for r in run.writer.of(CensusRecord)]
            return [*censuses, *((b.index, b.kind, b.time_s) for b in run.writer.boundaries)]

        assert measured(asks=True) == measured(asks=False)

    def test_its_time_is_reported_and_not_taken_out_of_the_budget(self, run: FakeSession) -> None:
        run.steps(3, 0.01)
        spent = run.session._costs.total
        run.clock.sleep(PATIENCE_SECONDS)
        ask()
        assert run.session._costs.total == spent
        run.close()
        reported = run.writer.of(OverheadRecord)[-1].seconds["on request"]
        assert reported >= run.taker.pauses[-1]


class TestTheProgramsOwnHandler:
    def test_one_that_was_there_first_stays(self) -> None:
        theirs = heard_by([])
        signal.signal(USR1, theirs)
        run = FakeSession(snapshot_signal="USR1")
        assert signal.getsignal(USR1) is theirs
        assert listening(run).signal == 0
        assert "a handler of its own for SIGUSR1" in listening(run).why_not
        run.close()
        assert signal.getsignal(USR1) is theirs

    def test_one_that_comes_later_is_left_alone_and_reported(self, run: FakeSession) -> None:
        assert listening(run).signal == USR1
        heard: list[int] = []
        theirs = heard_by(heard)
        ours = signal.signal(USR1, theirs)
        run.steps(3, 0.01)
        assert listening(run).signal == 0
        assert "taken that signal for itself" in listening(run).why_not
        ask()
        run.steps(3, 0.01)
        assert (heard, snapshots(run)) == ([USR1], [])
        signal.signal(USR1, ours)
        run.session.boundary(BoundaryKind.MARK)
        assert listening(run).signal == USR1
        signal.signal(USR1, theirs)
        run.close()
        assert signal.getsignal(USR1) is theirs

    def test_one_may_pass_on_to_ours(self, run: FakeSession) -> None:
        ours = signal.getsignal(USR1)
        assert callable(ours)
        signal.signal(USR1, lambda number, frame: ours(number, frame))
        run.steps(3, 0.01)
        ask()
        run.steps(1, 0.01)
        assert len(snapshots(run)) == 1

    def test_an_ignored_signal_stays_ignored(self) -> None:
        signal.signal(USR1, signal.SIG_IGN)
        run = FakeSession(snapshot_signal="USR1")
        assert "ignored" in listening(run).why_not
        run.close()
        assert signal.getsignal(USR1) is signal.SIG_IGN

    def test_nothing_is_installed_unasked(self) -> None:
        run = FakeSession()
        assert signal.getsignal(USR1) is signal.SIG_DFL
        assert run.writer.of(SnapshotSignalRecord) == []
        run.close()

    def test_the_signal_is_restored(self, run: FakeSession) -> None:
        run.close()
        assert signal.getsignal(USR1) is signal.SIG_DFL

    def test_a_late_request_does_not_end_a_process_that_is_ending(self, run: FakeSession) -> None:
        run.session.close(status="completed", for_good=True)
        assert signal.getsignal(USR1) is signal.SIG_IGN

    def test_recording_in_another_thread_says_why_there_is_none(self) -> None:
        started: list[FakeSession] = []
        in_thread(lambda: started.append(FakeSession(snapshot_signal="USR1")))
        assert "another thread" in listening(started[0]).why_not
        assert signal.getsignal(USR1) is signal.SIG_DFL
        started[0].close()


def asking_once() -> Callable[[], dict[str, int]]:
    """Return what tells the rows of censuses, and asks for one in the middle of the first."""
    left = [1]

    def sizes() -> dict[str, int]:
        if left:
            left.clear()
            ask()
        return {"history": 100}

    return sizes


def heard_by(heard: list[int]) -> Callable[[int, object], None]:
    def handler(number: int, frame: object) -> None:
        heard.append(number)

    return handler


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
