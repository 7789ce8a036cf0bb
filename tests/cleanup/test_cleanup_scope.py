"""`MemoryScope` tells what a block kept and its peak, and keeps nothing itself."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import platform
import subprocess
import sys
import traceback
import weakref
from collections.abc import Iterator

import pytest
import torch

from leakscope import cleanup
from leakscope.cleanup.levels import reset_peak_resident, resident
from leakscope.probes.process import peak_resident

MIB = 1 << 20

linux = pytest.mark.skipif(platform.system() != "Linux", reason="needs /proc")


def ones(mebibytes: int) -> torch.Tensor:
    return torch.ones(mebibytes * MIB, dtype=torch.uint8)


@linux
def test_what_was_kept_and_the_peak_are_distinguished() -> None:
    ones(8)  # what the first use of torch allocates is not this block's
    with cleanup.MemoryScope("load", exact_peak=True, quiet=True) as scope:
        kept = ones(64)
        ones(128)
    report = scope.report
    assert report is not None
    assert 60 * MIB < report.host_kept < 70 * MIB
    assert report.host_peak is not None
    assert report.host_peak.is_exact
    assert report.host_peak.at_least - resident() > 100 * MIB
    assert len(kept) == 64 * MIB


@linux
def test_a_peak_before_the_block_is_not_taken_for_its_own() -> None:
    ones(256)
    with cleanup.MemoryScope("small", quiet=True) as scope:
        ones(1)
    assert scope.report is not None
    peak = scope.report.host_peak
    assert peak is not None
    assert not peak.is_exact
    assert peak.at_most == peak_resident()
    assert "between" in str(scope.report)


@linux
def test_the_kernels_mark_can_start_again() -> None:
    ones(256)
    before = peak_resident()
    assert before is not None
    if not reset_peak_resident():
        pytest.skip("/proc/self/clear_refs can't be written here")
    after = peak_resident()
    assert after is not None
    assert before - after > 200 * MIB


def test_memory_that_was_released_is_reported() -> None:
    holding = [ones(64)]
    with cleanup.MemoryScope("free", quiet=True) as scope:
        holding.clear()
    assert "host gave back 64 MiB" in str(scope.report)


def test_garbage_counts_as_kept_unless_it_is_collected() -> None:
    class Node:
        pass

    def leave_a_cycle() -> None:
        node = Node()
        node.me = node  # type: ignore[attr-defined]
        node.tensor = ones(64)  # type: ignore[attr-defined]

    gc.disable()
    try:
        with cleanup.MemoryScope(quiet=True) as scope:
            leave_a_cycle()
        assert scope.report is not None
        assert scope.report.host_kept > 60 * MIB
        with cleanup.MemoryScope(collect=True, quiet=True) as scope:
            leave_a_cycle()
        assert scope.report is not None
        assert scope.report.host_kept < 30 * MIB
    finally:
        gc.enable()


def test_an_exception_passes_unchanged_and_nothing_keeps_it() -> None:
    class FailureError(Exception):
        pass

    def fail() -> None:
        raise FailureError

    scope = cleanup.MemoryScope("failing", quiet=True)
    try:
        with scope:
            fail()
    except FailureError as error:
        alive = weakref.ref(error)
        lines = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert lines == ["test_an_exception_passes_unchanged_and_nothing_keeps_it", "fail"]
    assert alive() is None
    assert "failing (left by FailureError)" in str(scope.report)


def test_a_decorated_function_reports_each_call() -> None:
    scope = cleanup.MemoryScope("factorial", quiet=True)

    @scope
    def factorial(number: int) -> int:
        """Of a number."""
        return number * factorial(number - 1) if number else 1

    assert factorial(5) == 120
    assert factorial.__name__ == "factorial"
    assert scope.report is not None


def test_a_coroutine_is_reported_when_it_has_run() -> None:
    scope = cleanup.MemoryScope("async", quiet=True)

    @scope
    async def work() -> int:
        assert scope.report is None
        await asyncio.sleep(0)
        return 7

    assert asyncio.run(work()) == 7
    assert scope.report is not None


def test_a_generator_function_is_refused_with_a_sentence() -> None:
    def batches() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="body runs after the call"):
        cleanup.MemoryScope("batches")(batches)


def test_a_scope_without_a_name_is_refused_with_a_sentence() -> None:
    with pytest.raises(TypeError, match="takes a name"):
        cleanup.MemoryScope(lambda: None)  # type: ignore[arg-type]


def test_the_report_goes_to_the_callers_logger(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("program")
    with caplog.at_level(logging.INFO, "program"), cleanup.MemoryScope("load", logger=logger):
        pass
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("program", "INFO")
    assert record.message.startswith("load: host kept")


@pytest.mark.parametrize(
    ("set_up", "is_listed"),
    [
        ("", True),
        ("logging.basicConfig()", True),
        ("logging.basicConfig(level=logging.INFO)", True),
        ("logging.getLogger('leakscope').setLevel(logging.ERROR)", False),
    ],
)
def test_a_report_is_on_stderr_unless_the_program_silenced_it(set_up: str, is_listed: bool) -> None:
    code = f"import logging, leakscope\n{set_up}\nwith leakscope.cleanup.MemoryScope('load'): pass"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == ""
    assert done.stderr.count("load: host kept") == int(is_listed)
