"""`cleanup_every` cleans when it is its turn, and knows whether that gained anything."""

from __future__ import annotations

import gc
import logging
import platform
import weakref
from collections.abc import Iterator

import pytest
import torch
from stand_in import StandIn, install

from leakscope import cleanup
from leakscope.cleanup.clearing import UNDECIDED, USEFUL, USELESS

MIB = 1 << 20

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")


class Node:
    me: Node
    tensor: torch.Tensor


@pytest.fixture
def no_automatic_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leave_a_cycle(mebibytes: int) -> None:
    node = Node()
    node.me = node
    node.tensor = torch.ones(mebibytes * MIB, dtype=torch.uint8)


def test_it_is_the_turn_of_every_nth_step() -> None:
    every = cleanup.cleanup_every(3)
    turns = [step for step in range(1, 11) if every.step() is not None]
    assert turns == [3, 6, 9]
    assert (every.report().steps, every.report().calls) == (10, 3)


def test_a_loop_goes_through_the_same_items() -> None:
    every = cleanup.cleanup_every(2)
    loop = every([10, 20, 30, 40])
    assert list(loop) == [10, 20, 30, 40]
    assert len(loop) == 4
    assert every.report().steps == 4
    assert list(every(iter("ab"))) == ["a", "b"]
    assert every.report().steps == 6


def test_an_item_is_not_kept_while_it_cleans() -> None:
    class Batch:
        pass

    alive: list[weakref.ref[Batch]] = []

    def make(_: int) -> Batch:
        batch = Batch()
        alive.append(weakref.ref(batch))
        return batch

    class Watching(cleanup.cleanup_every):
        def step(self) -> cleanup.ClearedMemory | None:
            seen.append(alive[-1]())
            return super().step()

    seen: list[Batch | None] = []
    for batch in Watching(1)(map(make, range(4))):
        del batch
    assert seen == [None] * 4


def test_breaking_off_the_loop_is_no_fault() -> None:
    every = cleanup.cleanup_every(1)
    for number in every(range(10)):
        if number == 3:
            break
    assert every.report().steps == 3


def test_a_cleanup_that_gains_nothing_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    every = cleanup.cleanup_every(1)
    with caplog.at_level(logging.WARNING):
        for _ in range(12):
            every.step()
    assert every.report().verdict == USELESS
    (record,) = caplog.records
    assert "leave it out" in record.message
    assert "5 cleanups" in record.message


@glibc
def test_garbage_that_only_it_frees_makes_it_useful(
    no_automatic_collection: None, caplog: pytest.LogCaptureFixture
) -> None:
    every = cleanup.cleanup_every(2)
    for _ in range(14):
        leave_a_cycle(8)
        every.step()
    report = every.report()
    assert report.verdict == USEFUL
    assert 13 * 8 * MIB < report.freed < 15 * 8 * MIB
    assert report.freed_anyway == 0
    assert caplog.records == []
    assert "freed 112 MiB of garbage in" in str(report)


@glibc
def test_garbage_that_the_collector_frees_anyway_is_no_gain(no_automatic_collection: None) -> None:
    every = cleanup.cleanup_every(2)
    for _ in range(14):
        leave_a_cycle(8)
        gc.collect()  # as the collector does by itself, sooner or later
        leave_a_cycle(8)
        every.step()
    report = every.report()
    assert report.freed == 0
    assert report.freed_anyway > 6 * 8 * MIB


def test_many_small_objects_are_a_gain_though_no_bytes_show_it(
    no_automatic_collection: None,
) -> None:
    every = cleanup.cleanup_every(1)
    for _ in range(8):
        for _ in range(15_000):
            circle: list[object] = []
            circle.append(circle)
        del circle
        every.step()
    assert every.report().verdict == USEFUL
    assert every.report().objects > 100_000


def test_a_cache_that_is_taken_again_is_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = install(monkeypatch, StandIn())
    every = cleanup.cleanup_every(1)
    for _ in range(8):
        cuda.kept[0]["reserved"] = 200 + 50 * MIB
        every.step()
    report = every.report()
    assert report.returned >= 8 * 50 * MIB
    assert report.taken_again >= 7 * 50 * MIB
    assert report.verdict == USELESS


def test_before_the_first_cleanup_there_is_nothing_to_judge() -> None:
    every = cleanup.cleanup_every(100)
    assert str(every.report()) == "cleanup_every(100) has not cleaned up yet, after 0 steps."
    every.step()
    assert every.report().verdict == UNDECIDED


def test_a_number_of_steps_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="from 1 on"):
        cleanup.cleanup_every(0)
