"""A whole walk holds the censuses that go on from a seal to account."""

from __future__ import annotations

import subprocess
import sys

import pytest

from leakscope.heap import CensusTaker
from leakscope.heap.graph import can_seal

pytestmark = pytest.mark.skipif(not can_seal(), reason="the heap is walked by the slower walker")


def test_what_goes_on_from_a_seal_is_not_apart_from_a_whole_walk(tmp_path):
    """In a process of its own: what other tests share with libraries has another name there."""
    program = """
import sys
from leakscope.heap import CensusTaker
from leakscope.model.census import CensusScope

taker = CensusTaker(project_root=sys.argv[1])
taker.take(CensusScope.FULL)
kept = [bytearray(100_000) for _ in range(20)]
resumed = taker.take(CensusScope.FULL)
checked = taker.take_checked()
assert not resumed.whole
assert checked.whole
assert checked.sealed
assert set(checked.drift_bytes) == {"heap", "native", "row"}
assert max(map(abs, checked.drift_bytes.values())) < 200_000, checked.drift_bytes
assert not taker.take(CensusScope.FULL).whole
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_a_seal_there_is_nothing_to_hold_it_against(tmp_path):
    taker = CensusTaker(project_root=str(tmp_path))
    census = taker.take_checked()
    assert census.whole
    assert census.drift_bytes is None
