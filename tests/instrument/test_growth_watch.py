"""What is noticed of growth while a program runs."""

from __future__ import annotations

import pytest

from leakscope.instrument.growth import GrowthWatch
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
