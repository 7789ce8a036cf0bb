"""What leakscope itself keeps doesn't grow with the run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from own_memory import MIB, in_a_process

BOUNDARIES = 20_000
WARM_UP = 3
"""Of ten looks; by then every table has its entries and every kind of boundary its censuses."""


@pytest.mark.slow
def test_own_memory_is_flat_over_a_long_run():
    pytest.importorskip("torch")
    looks = in_a_process(BOUNDARIES, plain=False)[WARM_UP:]
    first, last = looks[0], looks[-1]
    boundaries = last.boundaries - first.boundaries
    assert boundaries > BOUNDARIES / 2
    assert first.objects > 0
    assert last.objects - first.objects < boundaries / 1000
    assert last.blocks - first.blocks < boundaries / 50
    assert last.resident - first.resident < 4 * MIB
