"""Memory runs out under a session: what is recorded, and when a census is taken or is not."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from fake_session import FakeSession

from leakscope.capture import shortages
from leakscope.capture.budget import Due
from leakscope.capture.measuring import Headroom
from leakscope.model import gauge
from leakscope.model.census import CensusScope
from leakscope.model.record import BoundaryRecord, CensusRecord, NoteRecord, OutOfMemoryRecord
from leakscope.probes.out_of_memory import Room, read_message, shortage_behind

GIB, MIB = 1 << 30, 1 << 20
CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 4000000000000000 bytes. Error code 12 (Cannot allocate memory)"
)
TORCH_2 = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79.10 GiB of "
    "which 3.25 GiB is free. Including non-PyTorch memory, this process has 75.85 GiB memory in "
    "use. Of the allocated memory 70.50 GiB is allocated by PyTorch, and 512.00 MiB is reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting ..."
)
TORCH_1 = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.58 GiB "
    "already allocated; 41.44 MiB free; 9.63 GiB reserved in total by PyTorch) If reserved ..."
)


class OutOfMemoryError(RuntimeError):
    """Stands for torch's, which a build without CUDA never raises by itself."""


@pytest.fixture
def run():
    run = FakeSession()
    yield run
    run.close()


def records(run) -> list[OutOfMemoryRecord]:
    return run.writer.of(OutOfMemoryRecord)


def observe(run, requested=GIB, device=0) -> None:
    run.session._shortages.observe(device, requested, 80 * GIB, 10 * MIB)


def leave(run, error: BaseException) -> None:
    try:
        raise error
    except BaseException as caught:
        run.session.failed(caught)


class TestMessages:
    @pytest.mark.parametrize(
        "error",
        [MemoryError(), RuntimeError(CPU), RuntimeError("CUDA error: out of memory\nCompile ...")],
    )
    def test_shortages_are_recognised(self, error):
        assert shortage_behind(error) is error

    @pytest.mark.parametrize(
        "error", [ValueError("out of memory"), RuntimeError("size mismatch"), KeyboardInterrupt()]
    )
    def test_other_failures_are_none(self, error):
        assert shortage_behind(error) is None

    def test_the_cause_counts_and_the_context_does_not(self):
        wrapped = ValueError("could not build the batch")
        wrapped.__cause__ = MemoryError()
        assert shortage_behind(wrapped) is wrapped.__cause__
        later = ValueError("something else, while recovering")
        later.__context__ = MemoryError()
        assert shortage_behind(later) is None

    def test_a_circle_of_causes_ends(self):
        first, second = ValueError(), KeyError()
        first.__cause__, second.__cause__ = second, first
        assert shortage_behind(first) is None

    def test_the_host_tells_what_was_requested(self):
        reported = read_message(RuntimeError(CPU))
        assert (reported.device, reported.requested) == ("host", 4 * 10**15)
        numpy = MemoryError("Unable to allocate 7.28 TiB for an array with shape (10**12,)")
        assert read_message(numpy).requested == round(7.28 * (1 << 40))
        assert read_message(MemoryError()).requested is None

    def test_a_device_tells_how_it_stood(self, run):
        new = read_message(OutOfMemoryError(TORCH_2))
        assert (new.device, new.requested) == ("cuda:1", 20 * GIB)
        assert (new.free, new.total) == (round(3.25 * GIB), round(79.1 * GIB))
        assert (new.allocated, new.reserved) == (round(70.5 * GIB), 71 * GIB)
        old = read_message(OutOfMemoryError(TORCH_1))
        assert (old.device, old.requested, old.total) == ("cuda:0", 20 * MIB, round(10.76 * GIB))
        assert (old.allocated, old.reserved) == (round(9.58 * GIB), round(9.63 * GIB))
        assert (old.free, old.holes) == (round(41.44 * MIB), old.reserved - old.allocated)


class TestObserver:
    def test_it_records_the_moment_with_a_full_census(self, run):
        run.train_pass(3)
        observe(run)
        (record,) = records(run)
        assert (record.seen, record.device, record.requested) == ("observer", "cuda:0", GIB)
        assert (record.free, record.step, record.number) == (10 * MIB, 3, 1)
        assert record.census is not None
        assert record.census.scope is CensusScope.FULL

    def test_later_ones_pay_from_the_budget(self, run):
        run.train_pass(3)
        observe(run)
        run.train_pass(3)
        observe(run)
        first, second = records(run)
        assert first.census is not None
        assert second.census is None
        assert "budget" in second.no_census
        run.train_pass(3, seconds=1000.0)
        observe(run)
        assert records(run)[-1].census is not None

    def test_tries_without_end_are_recorded_a_few_times(self, run):
        for _ in range(100):
            observe(run)
        assert len(records(run)) == shortages.MOST_RECORDED

    def test_a_closed_session_does_nothing(self, run):
        run.close()
        observe(run)
        assert records(run) == []

    def test_inside_a_census_only_the_figures_are_kept(self, run):
        run.session.gate.dispatch(lambda: observe(run))
        (record,) = records(run)
        assert record.census is None
        assert record.no_census == "another census was under way"

    def test_in_a_backward_pass_the_graph_is_left_alone(self, run):
        run.train_pass(3)
        thread = threading.Thread(target=observe, args=(run, 20 * GIB, 1))
        thread.start()
        thread.join()
        (observed,) = records(run)
        assert observed.census is None
        assert observed.no_census == "a backward pass was under way"
        leave(run, OutOfMemoryError(TORCH_2))
        left = records(run)[-1]
        assert left.census is not None
        assert left.number == 1

    def test_a_fault_of_the_census_costs_only_the_census(self, run, monkeypatch):
        monkeypatch.setattr(run.session._guard, "strict", False)
        run.taker.error = MemoryError("no room for the walk")
        observe(run)
        (record,) = records(run)
        assert record.census is None
        assert record.requested == GIB

    def test_without_room_there_is_no_census(self, run, monkeypatch):
        monkeypatch.setattr(shortages, "host_room", lambda: Room(free=1000))
        observe(run)
        assert records(run)[0].no_census == "there was no room or no time for one"

    def test_nobody_waits_long_for_a_census(self):
        run = FakeSession(focused=0.5, whole=60.0)
        run.train_pass(3)
        run.session._costs._expected[Due.WHOLE] = 60.0
        observe(run)
        assert records(run)[0].census.scope is CensusScope.FOCUSED
        run.session._costs._expected[Due.FOCUSED] = 60.0
        leave(run, MemoryError())
        assert records(run)[-1].no_census == "there was no room or no time for one"
        run.close()


class TestException:
    def test_the_frames_that_it_left_are_looked_at(self, run):
        def fit():
            raise MemoryError

        try:
            fit()
        except MemoryError as error:
            run.session.failed(error)
        (record,) = records(run)
        assert (record.seen, record.device, record.error) == ("exception", "host", "MemoryError")
        assert run.taker.unwound[-1] == "fit"
        assert record.census is not None
        assert record.limits["machine"] > record.free > 0

    def test_other_exceptions_are_not_recorded(self, run):
        leave(run, ValueError("wrong shape"))
        assert records(run) == []

    def test_what_was_observed_is_not_looked_at_twice(self, run):
        observe(run, requested=20 * GIB, device=1)
        leave(run, OutOfMemoryError(TORCH_2))
        observed, left = records(run)
        assert observed.census is not None
        assert left.census is None
        assert (left.seen, left.number, left.snapshot) == ("exception", 1, None)

    def test_another_request_than_the_observed_is_looked_at(self, run):
        observe(run, requested=5 * GIB, device=1)
        leave(run, OutOfMemoryError(TORCH_2))
        assert [record.census is not None for record in records(run)] == [True, True]

    def test_a_message_without_a_device_means_the_current_one(self, run, monkeypatch):
        cuda = SimpleNamespace(current_device=lambda: 3)
        monkeypatch.setattr(shortages, "awake_cuda", lambda: cuda)
        leave(run, RuntimeError("CUDA error: out of memory"))
        assert records(run)[0].device == "cuda:3"

    def test_secrets_in_the_message_are_not_kept(self, run):
        leave(run, MemoryError("while reading s3://me:hunter2@bucket with api_key=hunter2"))
        assert "hunter2" not in records(run)[0].message


def says(headroom: Headroom, available: int, resident: int) -> bool:
    headroom.learn({gauge.SYSTEM_AVAILABLE: available}, resident)
    low = headroom.is_running_out(resident)
    if low:
        headroom.reported(resident)
    return low


class TestHeadroom:
    def test_it_is_reported_once_and_again_when_halved(self):
        headroom = Headroom()
        left = [5 * GIB, 900 * MIB, 800 * MIB, 500 * MIB, 450 * MIB, 200 * MIB, 200 * MIB]
        assert [says(headroom, available, 10 * GIB) for available in left] == [
            *(False, True, False, False, True, True, False),
        ]

    def test_growth_since_the_last_reading_counts(self):
        headroom = Headroom()
        headroom.learn({gauge.SYSTEM_AVAILABLE: 2 * GIB}, 10 * GIB)
        assert not headroom.is_running_out(10 * GIB)
        assert headroom.is_running_out(11 * GIB + 500 * MIB)
        headroom.learn({gauge.SYSTEM_AVAILABLE: GIB + GIB // 2}, 11 * GIB + 500 * MIB)
        assert not headroom.is_running_out(11 * GIB + 500 * MIB), "the file cache gave way"

    def test_the_tightest_limit_counts_whichever_was_read_last(self):
        headroom = Headroom()
        headroom.learn({gauge.CGROUP_LIMIT: 8 * GIB, gauge.CGROUP_USED: 7 * GIB}, 6 * GIB)
        headroom.learn({gauge.SYSTEM_AVAILABLE: 100 * GIB}, 6 * GIB)
        assert headroom.left(6 * GIB) == GIB
        assert headroom.is_running_out(6 * GIB + 600 * MIB)

    def test_a_small_container_is_not_low_from_the_start(self):
        assert not says(Headroom(), 300 * MIB, 200 * MIB)
        assert says(Headroom(), 40 * MIB, 460 * MIB)

    def test_a_large_machine_with_a_small_process_is_judged_by_a_floor(self):
        assert not says(Headroom(), 300 * MIB, 100 * MIB)
        assert not Headroom().is_running_out(GIB), "nothing is known"

    def test_a_last_census_is_taken_beyond_the_budget(self, run):
        run.train_pass(40, seconds=10.0)
        before = len(run.taker.taken)
        run.slow.value = 50 * MIB
        run.train_pass(2, seconds=0.01)
        taken = run.writer.of(CensusRecord)
        assert len(run.taker.taken) > before
        (note,) = [n for n in run.writer.of(NoteRecord) if n.slug == "memory-low"]
        assert "50 MiB" in note.message
        assert note.boundary in {record.boundary for record in taken}
        assert note.boundary in {r.boundary.index for r in run.writer.of(BoundaryRecord)}

    def test_enough_memory_is_never_mentioned(self, run):
        run.train_pass(40, seconds=10.0)
        assert run.slow.name == gauge.SYSTEM_AVAILABLE
        assert [n for n in run.writer.of(NoteRecord) if n.slug == "memory-low"] == []

    def test_without_room_for_a_census_it_says_so(self, run):
        run.session._measuring._objects = {Due.FOCUSED: 10_000_000, Due.FULL: 10_000_000}
        run.slow.value = 50 * MIB
        run.train_pass(2)
        assert "census-skipped-memory" in {n.slug for n in run.writer.of(NoteRecord)}
        low = [n.message for n in run.writer.of(NoteRecord) if n.slug == "memory-low"]
        assert "too little for a census" in low[0]
