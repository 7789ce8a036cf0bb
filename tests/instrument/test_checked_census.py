"""A whole walk holds the censuses that go on from a seal to account."""

from __future__ import annotations

import pytest

from leakscope.heap import CensusTaker
from leakscope.heap.graph import can_seal
from leakscope.model.census import CensusScope

pytestmark = pytest.mark.skipif(not can_seal(), reason="the heap is walked by the slower walker")


def test_what_goes_on_from_a_seal_is_not_apart_from_a_whole_walk(tmp_path):
    taker = CensusTaker(project_root=str(tmp_path))
    taker.take(CensusScope.FULL)
    kept = [bytearray(100_000) for _ in range(20)]
    resumed = taker.take(CensusScope.FULL)
    checked = taker.take_checked()
    assert not resumed.whole
    assert checked.whole
    assert checked.sealed
    assert checked.drift_bytes is not None
    assert set(checked.drift_bytes) == {"heap", "native", "row"}
    sums = checked.drift_bytes["heap"], checked.drift_bytes["native"]
    assert max(map(abs, sums)) < 200_000
    assert not taker.take(CensusScope.FULL).whole
    del kept


def test_without_a_seal_there_is_nothing_to_hold_it_against(tmp_path):
    taker = CensusTaker(project_root=str(tmp_path))
    census = taker.take_checked()
    assert census.whole
    assert census.drift_bytes is None
