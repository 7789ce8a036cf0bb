"""Blocks are counted whoever else stands in front of the allocators, and a limit is acted upon."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Iterator
from itertools import repeat

import pytest

from leakscope.probes.allocations import AllocationCounter, AllocationWindow

pytest.importorskip("leakscope.probes._counting", reason="only the native part can count")

MANY = 10_000


@pytest.fixture
def counter() -> Iterator[AllocationCounter]:
    assert not tracemalloc.is_tracing()
    counter = AllocationCounter()
    yield counter
    tracemalloc.stop()
    counter.stop()


def allocate(count: int = MANY) -> list[object]:
    return [object() for _ in repeat(None, count)]


def counted_by(counter: AllocationCounter) -> int:
    before = counter.counted()
    allocate()
    return counter.counted() - before


def is_about_right(count: int) -> bool:
    return MANY <= count < MANY * 1.1


def test_blocks_that_are_gone_at_once_are_counted_too(counter: AllocationCounter) -> None:
    assert counter.start()
    before, alive = counter.counted(), counter.alive()
    for _ in repeat(None, MANY):
        object()
    assert is_about_right(counter.counted() - before)
    assert abs(counter.alive() - alive) < 100


def test_nothing_is_counted_before_and_after(counter: AllocationCounter) -> None:
    counter.start()
    counter.stop()
    other = AllocationCounter()
    allocate()
    other.start()
    first = other.counted()
    other.stop()
    allocate()
    other.start()
    assert other.counted() - first < 100
    other.stop()


@pytest.mark.parametrize("order", ["counting first", "tracing first"])
def test_it_gets_along_with_tracing_that_begins_and_ends_meanwhile(
    counter: AllocationCounter, order: str
) -> None:
    if order == "counting first":
        counter.start()
        tracemalloc.start()
    else:
        tracemalloc.start()
        counter.start()
    assert is_about_right(counted_by(counter))
    kept = allocate()
    assert tracemalloc.get_object_traceback(kept[5]) is not None
    counter.stop()
    tracemalloc.stop()
    for _ in range(2):
        counter.start()
        assert is_about_right(counted_by(counter))
        counter.stop()
    del kept


def test_at_the_limit_a_function_is_called_once_in_the_middle_of_a_loop(
    counter: AllocationCounter,
) -> None:
    calls: list[int] = []
    counter.start()
    counter.arm(1000, lambda: calls.append(counter.counted()))
    begun = counter.counted()
    kept = [object() for _ in range(MANY)]
    for _ in range(MANY):
        kept.append(object())
    assert len(calls) == 1
    assert calls[0] - begun < 2 * MANY + 1000
    counter.arm(1000, lambda: calls.append(0))
    counter.disarm()
    for _ in range(MANY):
        object()
    assert len(calls) == 1


def test_a_fault_in_there_is_none_of_the_programs(counter: AllocationCounter) -> None:
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        raise RecursionError

    counter.start()
    counter.arm(100, fails)
    for _ in range(MANY):
        object()
    assert calls  # and again, for there may be room later


def test_an_interrupt_in_there_is_the_programs(counter: AllocationCounter) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    counter.start()
    counter.arm(100, interrupted)
    with pytest.raises(KeyboardInterrupt):
        for _ in range(MANY):
            object()


def test_a_window_that_is_cut_traces_no_more_and_has_seen_nothing(
    counter: AllocationCounter,
) -> None:
    window = AllocationWindow()
    counter.start()
    window.open()
    counter.arm(1000, window.cut)
    for _ in range(MANY):
        object()
    assert window.is_cut
    assert not tracemalloc.is_tracing()
    tracemalloc.start()  # the program's own
    assert window.close() == ([], 0)
    assert tracemalloc.is_tracing()


def test_tracing_costs_something_and_leaves_no_trace(counter: AllocationCounter) -> None:
    cost = counter.cost()
    assert cost is not None
    assert 0 < cost.per_block < 1e-3
    assert 0 < cost.per_kept < 1e-3
    assert not tracemalloc.is_tracing()
    tracemalloc.start()
    assert counter.cost() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_counts_nothing_and_calls_nothing(counter: AllocationCounter) -> None:
    counter.start()
    counter.arm(200_000, lambda: os._exit(3))
    child = os.fork()
    if child == 0:
        before = counter.counted()
        for _ in range(300_000):
            object()
        os._exit(0 if counter.counted() == before else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sys.getallocatedblocks() > 0
