"""Frames that an exception has left and its traceback keeps: named as if they were running."""

from __future__ import annotations

import sys
import weakref
from types import FrameType

import pytest

from leakscope.heap import CensusTaker
from leakscope.model.census import Census, CensusScope

SIZE = 3 << 20


class Payload(bytearray):
    """Bytes that can be watched."""


def fails(keep: list[Payload]) -> None:
    inner = Payload(SIZE)
    assert inner
    raise MemoryError


def trains() -> None:
    history = [Payload(SIZE)]
    fails(history)


def left_by(error: BaseException) -> list[FrameType]:
    found, traceback = [], error.__traceback__
    while traceback is not None:
        found.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return found


def census_after(error: BaseException | None) -> Census:
    assert error is not None
    taker = CensusTaker(project_root=__file__.rpartition("/")[0])
    return taker.take(CensusScope.FOCUSED, left_by(error))


def test_what_the_left_frames_hold_has_its_name() -> None:
    try:
        trains()
    except MemoryError:
        census = census_after(sys.exc_info()[1])
    sizes = {row.path: row.host_bytes for row in census.rows}
    assert sizes["trains()·history"] >= SIZE
    assert sizes["fails()·inner"] >= SIZE
    assert "fails()·keep" not in sizes, "the outer function's name is the better one"


def test_without_them_it_has_none() -> None:
    with pytest.raises(MemoryError):
        trains()
    census = CensusTaker(project_root=__file__.rpartition("/")[0]).take(CensusScope.FOCUSED)
    assert not {row.path for row in census.rows} & {"trains()·history", "fails()·inner"}


def test_a_frame_that_still_runs_is_named_once() -> None:
    here = [Payload(SIZE)]
    taker = CensusTaker(project_root=__file__.rpartition("/")[0])
    census = taker.take(CensusScope.FOCUSED, [sys._getframe()])
    mine = [row for row in census.rows if row.path.endswith("()·here")]
    assert [row.count for row in mine] == [1]
    assert here


def test_a_census_of_left_frames_keeps_nothing_alive() -> None:
    watched: list[weakref.ref[Payload]] = []

    def run() -> None:
        kept = Payload(SIZE)
        watched.append(weakref.ref(kept))
        raise MemoryError

    try:
        run()
    except MemoryError as error:
        census_after(error)
    assert watched[0]() is None
