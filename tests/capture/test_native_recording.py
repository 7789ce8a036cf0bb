"""Native allocations in a recording: with each census and at new heights, within the budget."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leakscope.capture.budget import Costs, Due
from leakscope.capture.options import SessionOptions
from leakscope.capture.policy import (
    BLOCKS_SHARE,
    NATIVE_FLOOR_SECONDS,
    NATIVE_SHARE,
)
from leakscope.capture.profiles import NativeAllocations
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import SampledBlock
from leakscope.model.errors import LeakscopeError
from leakscope.model.record import NativeAllocationsRecord, NativeOwner, Record
from leakscope.recording import open_run

MIB = 1 << 20
BUDGET = 0.02


class FakeProfile:
    """Has something to say at each census and new height, and takes a while for it."""

    def __init__(self, why_not: str = "") -> None:
        self.why_not = why_not
        self.now = 0.0
        self.takes = 0.01
        self.is_on = True
        self.is_running = False
        self.samples_blocks = False
        self.blocks_seconds = 0.0

    def blocks_of(self, objects: list[object], addresses: list[int]) -> list[SampledBlock]:
        return []

    def stop_blocks(self) -> None:
        self.samples_blocks = False

    def start(self) -> bool:
        self.is_running = not self.why_not
        return self.is_running

    def stop(self) -> None:
        self.is_running = False

    def record(
        self, boundary: int, resident: int, *, with_census: bool
    ) -> NativeAllocationsRecord | None:
        if not with_census and not resident:
            return None
        self.now += self.takes
        return NativeAllocationsRecord(boundary=boundary, interval_bytes=1, is_on=self.is_on)


class Recorded:
    """What is written down for a fake profile."""

    def __init__(self, profile: FakeProfile) -> None:
        self.profile = profile
        self.records: list[Record] = []
        self.notes: list[str] = []
        self.costs = Costs()
        self.native = NativeAllocations(
            profile, self.write, self.note, self.costs, lambda: profile.now, BUDGET
        )
        self.native.start()

    def write(self, record: Record) -> bool:
        self.records.append(record)
        return True

    def note(self, slug: str, _: str) -> None:
        self.notes.append(slug)

    def reach(self, index: int, done: Due, time_s: float = 0.0) -> None:
        boundary = Boundary(index=index, kind=BoundaryKind.STEP, time_s=time_s)
        self.native.at(boundary, done, 100 * MIB)


def test_what_is_live_is_written_down_with_every_census() -> None:
    recorded = Recorded(FakeProfile())
    for index in range(50):
        recorded.reach(index, Due.FULL)
    assert len(recorded.records) == 50
    assert recorded.costs.seconds["native"] == pytest.approx(0.5)


def test_heights_are_looked_at_within_a_part_of_the_budget() -> None:
    recorded = Recorded(FakeProfile())
    for index in range(1000):
        recorded.reach(index, Due.RECORD)
    assert len(recorded.records) == pytest.approx(NATIVE_FLOOR_SECONDS / 0.01, abs=2)
    recorded.reach(1001, Due.RECORD, time_s=1000.0)
    before = len(recorded.records)
    for index in range(1000):
        recorded.reach(index, Due.RECORD, time_s=1000.0)
    assert len(recorded.records) - before == pytest.approx(
        1000 * BUDGET * NATIVE_SHARE / 0.01, abs=2
    )


def test_following_pythons_blocks_is_charged_once_the_work_begins() -> None:
    recorded = Recorded(FakeProfile())
    recorded.profile.samples_blocks = True
    for index, spent in enumerate([0.0, 3.0, 3.01, 3.05]):  # the first seconds are imports
        recorded.profile.blocks_seconds = spent
        recorded.reach(index, Due.RECORD, time_s=10.0 + index)
    assert recorded.costs.seconds["blocks"] == pytest.approx(0.05)
    assert recorded.native.samples_blocks
    assert recorded.notes == []


@pytest.mark.parametrize(("part", "goes_on"), [(0.9, True), (1.1, False)])
def test_a_program_that_makes_too_many_objects_is_followed_no_more(
    part: float, goes_on: bool
) -> None:
    recorded = Recorded(FakeProfile())
    recorded.profile.samples_blocks = True
    recorded.reach(0, Due.RECORD)
    recorded.reach(1, Due.RECORD, time_s=10.0)
    for second in range(1, 30):
        recorded.profile.blocks_seconds = part * BLOCKS_SHARE * BUDGET * second
        recorded.reach(1 + second, Due.RECORD, time_s=10.0 + second)
    assert recorded.native.samples_blocks is goes_on
    assert recorded.notes == ([] if goes_on else ["blocks-off"])


def test_why_nothing_is_sampled_is_noted_once() -> None:
    recorded = Recorded(FakeProfile(why_not="There is a reason."))
    recorded.reach(0, Due.FULL)
    recorded.reach(1, Due.FULL)
    assert recorded.notes == ["native-off"]
    assert recorded.records == []


def test_a_fault_is_noted_and_ends_it() -> None:
    recorded = Recorded(FakeProfile())
    recorded.reach(0, Due.FULL)
    recorded.profile.is_on = False
    recorded.reach(1, Due.FULL)
    recorded.reach(2, Due.FULL)
    assert recorded.notes == ["native-fault"]
    assert len(recorded.records) == 2
    assert not recorded.profile.is_running


def test_intervals_that_make_no_sense_are_refused() -> None:
    for interval in (0, 100, 1.5, True, -(1 << 20)):
        with pytest.raises(LeakscopeError, match="native_interval"):
            SessionOptions(native_interval=interval)  # type: ignore[arg-type]
    with pytest.raises(LeakscopeError, match="native must be"):
        SessionOptions(native="on")  # type: ignore[arg-type]


PROGRAM = """
import ctypes

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def read_frame():
    return libc.malloc(200_000)


for _ in range(300):
    frame = read_frame()
    if not LEAKS:
        libc.free(frame)
"""


def recorded_by_run(
    folder: Path, *options: str, leaks: bool = True
) -> list[NativeAllocationsRecord]:
    script = folder / "program.py"
    script.write_text(PROGRAM.replace("LEAKS", str(leaks)))
    run = folder / "run"
    command = [sys.executable, "-m", "leakscope", "run", "--quiet", "--no-report", "--out", run]
    subprocess.run([*command, *options, script], check=True, timeout=120)
    return open_run(run).main.native_allocations


@pytest.mark.slow
@pytest.mark.sample
def test_a_leak_of_native_memory_is_recorded_with_its_line(tmp_path: Path) -> None:
    pytest.importorskip("leakscope.probes._sampling", reason="it was not built here")
    sites = recorded_by_run(tmp_path, "--native-interval", "64KiB")[-1].sites
    leaks = [site for site in sites if site.caller == "read_frame"]
    assert leaks == sites[: len(leaks)]
    # Of a 95 % interval one run in twenty is outside.
    assert abs(leaks[0].bytes - 300 * 200_000) <= 4 * leaks[0].deviation_bytes
    assert leaks[0].file == str(tmp_path / "program.py")
    assert leaks[0].owner is NativeOwner.LIBRARY
    assert leaks[0].line == PROGRAM.splitlines().index("    return libc.malloc(200_000)") + 1


@pytest.mark.slow
def test_memory_that_is_freed_leaves_no_row(tmp_path: Path) -> None:
    pytest.importorskip("leakscope.probes._sampling", reason="it was not built here")
    record = recorded_by_run(tmp_path, leaks=False)[-1]
    assert sum(s.bytes for s in record.sites if s.caller == "read_frame") <= 2 * 200_000
    assert record.unseen_frees == record.dropped == 0


@pytest.mark.slow
def test_nothing_is_sampled_where_nobody_wants_it(tmp_path: Path) -> None:
    assert recorded_by_run(tmp_path, "--native", "off") == []
