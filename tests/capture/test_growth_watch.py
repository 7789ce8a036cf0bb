"""What is noticed of growth while a program runs."""

from __future__ import annotations

import pytest

from leakscope.capture.schedule import GrowthWatch
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import Census, CensusScope

MIB = 1 << 20


class Epochs:
    """Censuses at the beginnings of epochs."""

    def __init__(self, name: str = gauge.MALLOC_IN_USE) -> None:
        self.watch = GrowthWatch()
        self.name = name
        self.seen = 0

    def begin(self, in_use: float, reached: float = 0.0, scope=CensusScope.FOCUSED) -> bool:
        self.seen += 1
        boundary = Boundary(
            index=self.seen, kind=BoundaryKind.PHASE_BEGIN, time_s=self.seen, phase="train"
        )
        census = Census(
            scope=scope,
            rows=[],
            cutoff_bytes=1,
            objects=1,
            heap_bytes=0,
            payload_bytes={"host": int(reached * MIB)},
        )
        self.watch.learn(boundary, census, {self.name: int(in_use * MIB)})
        return self.watch.is_unnamed


@pytest.mark.parametrize("name", [gauge.MALLOC_IN_USE, gauge.RSS])
def test_memory_that_rises_under_no_name_is_noticed_at_the_third_rise(name: str) -> None:
    epochs = Epochs(name)
    assert [epochs.begin(100 + n) for n in range(5)] == [False, False, False, True, True]


@pytest.mark.parametrize(("free_grows", "wanted"), [(True, False), (False, True)])
def test_a_closer_look_is_not_wanted_at_what_the_c_heap_keeps_free(
    free_grows: bool, wanted: bool
) -> None:
    """Tracing names nothing there, and its blocks would spread the holes."""
    watch, seen = GrowthWatch(), []
    for n in range(8):
        boundary = Boundary(index=n, kind=BoundaryKind.PHASE_BEGIN, time_s=n, phase="train")
        census = Census(scope=CensusScope.FOCUSED, rows=[], cutoff_bytes=1, objects=1, heap_bytes=0)
        gauges = {gauge.RSS: (500 + 20 * n) * MIB}
        if n % 2 == 0:  # it is read now and then
            gauges[gauge.MALLOC_FREE] = (100 + 20 * n * free_grows) * MIB
        seen.append(watch.learn(boundary, census, gauges))
    assert any(seen) is wanted


def test_what_the_users_names_reach_is_no_such_growth() -> None:
    epochs = Epochs()
    assert not any(epochs.begin(100 + n, reached=n) for n in range(8))


def test_growth_that_ends_is_forgotten_whatever_was_walked() -> None:
    for scope in CensusScope:
        epochs = Epochs()
        assert [epochs.begin(100 + n) for n in range(4)][-1]
        assert not epochs.begin(103.1, scope=scope)


def test_walks_of_the_whole_heap_between_leave_growth_noticed() -> None:
    epochs = Epochs()
    assert [epochs.begin(100 + n) for n in range(4)][-1]
    assert epochs.begin(104, reached=80, scope=CensusScope.FULL)
    assert epochs.begin(105)
