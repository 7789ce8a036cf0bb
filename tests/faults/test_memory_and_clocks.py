"""No memory left, clocks that go backwards, and a heap full of objects that fight back."""

from __future__ import annotations

from pathlib import Path

import fault_runs
import pytest

from leakscope.analysis import analyse
from leakscope.recording import open_run
from leakscope.report import render_html

SHORT_OF_MEMORY = """
import sys, resource
import leakscope

kept, refused = [], 0
with leakscope.profile(quiet=True) as scope:
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20), resource.RLIM_INFINITY))
    for step in scope.steps(range(400)):
        try:
            kept.append([bytearray(1000) for _ in range(500)])
        except MemoryError:
            refused += 1
            if refused == 20:
                kept.clear()
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    scope.mark("relief")
print("result", step, refused >= 20)
"""


@pytest.mark.parametrize("budget", fault_runs.mostly_slow(["2%", "100%"], "100%"))
def test_a_program_that_lives_with_too_little_memory_lives_with_leakscope(
    budget: str, tmp_path: Path
) -> None:
    ended = fault_runs.recorded(SHORT_OF_MEMORY, tmp_path, "--budget", budget, "--no-report")
    assert (ended.code, ended.out) == (0, "result 399 True\n")
    report = fault_runs.report_again(tmp_path)
    assert report["run"]["ended"] == "completed"
    assert report["work"]["steps"] >= 399
    recording = open_run(tmp_path / "run").main
    assert recording.measurements[-1].boundary.kind.value == "run_end"


WITH_CLOCKS = """
import itertools, time
ticks = itertools.count(10**6, -1)
asked = []


def backwards():
    asked.append(1)
    return next(ticks)


time.time = time.perf_counter = time.monotonic = time.process_time = backwards
time.perf_counter_ns = time.monotonic_ns = time.time_ns = backwards

import leakscope
kept = []
with leakscope.profile(quiet=True) as scope:
    for epoch in scope.epochs(range(5)):
        for step in scope.steps(range(300)):
            kept.append(bytes(3000))
print("result", len(kept), len(asked))
"""


def test_clocks_of_the_programs_are_not_called(tmp_path: Path) -> None:
    ended = fault_runs.recorded(WITH_CLOCKS, tmp_path, "--no-report", "-q")
    assert (ended.code, ended.out) == (0, "result 1500 0\n")
    times = [m.boundary.time_s for m in open_run(tmp_path / "run").main.measurements]
    assert times == sorted(times)
    assert times[-1] < fault_runs.PATIENCE_S


CLOCK_GOES_BACKWARDS = """
import random
from leakscope.capture.session import Session

chance = random.Random(0)
plain = Session.__init__


class Backwards:
    now = 1000.0

    def __call__(self):
        self.now += chance.uniform(-2.0, 1.0)
        return self.now


def begun(self, *arguments, **options):
    plain(self, *arguments, **{**options, "clock": Backwards()})


Session.__init__ = begun
import leakscope
kept = []
with leakscope.profile("run", report=False, quiet=True) as scope:
    for epoch in scope.epochs(range(8)):
        for step in scope.steps(range(50)):
            kept.append(bytes(30_000))
        with scope.phase("validation"):
            kept.append(bytes(1000))
print("result", len(kept))
"""


def test_a_clock_that_goes_backwards_costs_no_more_than_times(tmp_path: Path) -> None:
    ended = fault_runs.plainly(CLOCK_GOES_BACKWARDS, tmp_path)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert (ended.code, ended.out) == (0, "result 408\n")
    report = fault_runs.report_again(tmp_path)
    assert report["run"]["ended"] == "completed"
    assert report["work"]["steps"] == 400
    assert report["errors"] == []
    assert render_html(analyse(open_run(tmp_path / "run")))


FIGHTING_BACK = """
import sys, time
import leakscope

CALLS = []


def of(name, base):
    def method(self, *arguments):
        CALLS.append(name)
        if {behaviour!r} == "sleeps":
            time.sleep(3600)
        if {behaviour!r} == "recurses":
            return method(self, *arguments)
        raise RuntimeError(name)

    return method


NAMES = '''__class__ __len__ __repr__ __str__ __del__ __getattribute__ __getattr__ __hash__ __eq__
    __iter__ __bool__ __sizeof__ __dict__ __contains__ __getitem__ __call__ __index__'''.split()
KINDS = [object, dict, list, tuple, set, str, bytes, int, float]


def evil(base):
    names = {{name: of(name, base) for name in NAMES}}
    for name in ("__class__", "__dict__"):
        names[name] = property(names[name])
    return type("Evil" + base.__name__, (base,), names)


held = [base.__new__(evil(base)) for base in KINDS for _ in range(50)]
by_name = {{str(number): one for number, one in enumerate(held)}}
kept = []
with leakscope.profile(quiet=True) as scope:
    for epoch in scope.epochs(range(5)):
        for step in scope.steps(range(20)):
            kept.append([held[step], bytes(5000)])
        with scope.phase("validation"):
            locally = held[0]
print("result", len(kept), CALLS)
sys.stdout.flush()
import os
os._exit(0)
"""


@pytest.mark.parametrize(
    "behaviour", fault_runs.mostly_slow(["raises", "sleeps", "recurses"], "sleeps")
)
def test_no_code_of_any_object_runs(behaviour: str, tmp_path: Path) -> None:
    program = FIGHTING_BACK.format(behaviour=behaviour)
    ended = fault_runs.recorded(program, tmp_path, "--budget", "100%", "--no-report", "-q")
    assert (ended.code, ended.out) == (0, "result 100 []\n"), ended.err
    recording = open_run(tmp_path / "run").main
    assert recording.errors == []
    names = {row.name for m in recording.measurements if m.census for row in m.census.rows}
    assert any("kept" in name for name in names)


ODD_HEAPS = """
import leakscope

numbers = {index + 10**9: None for index in range(10_000_000)}


class Node:
    __slots__ = ("next",)


head = None
for _ in range(200_000):
    node = Node()
    node.next = head
    head = node
many = [type(f"Kind{index}", (), {})() for index in range(5_000)]
kept = []
with leakscope.profile(quiet=True) as scope:
    for epoch in scope.epochs(range(6)):
        for step in scope.steps(range(50)):
            kept.append(bytes(100_000))
print("result", len(numbers), len(many), len(kept))
while head is not None:
    head = head.next
"""


@pytest.mark.slow
def test_deep_wide_and_many_kinded_heaps_are_looked_at(tmp_path: Path) -> None:
    if available() < 6 << 30:
        pytest.skip("the dict alone takes a gigabyte")
    ended = fault_runs.recorded(ODD_HEAPS, tmp_path, "--max-pause", "1000")
    assert (ended.code, ended.out) == (0, "result 10000000 5000 300\n")
    report = fault_runs.report_of(tmp_path)
    assert report["errors"] == []
    assert report["culprits"][0]["name"].endswith("kept")
    [last] = [m.census for m in open_run(tmp_path / "run").main.measurements if m.census][-1:]
    assert last.objects > 10_000_000 + 200_000 + 5_000


def available() -> int:
    with Path("/proc/meminfo").open() as reported:
        fields = (line.split() for line in reported)
        return next(int(f[1]) * 1024 for f in fields if f[0] == "MemAvailable:")
