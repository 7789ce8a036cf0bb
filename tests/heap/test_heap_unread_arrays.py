"""What no array can read any more of its base, also where torch is not installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from payloads import ENGINES, KB, unused


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestArrays:
    def test_a_view_keeps_its_base(self, engine: str) -> None:
        assert unused(engine, [np.zeros(KB)[:10]]) == 8 * KB - 80

    def test_a_view_of_a_view(self, engine: str) -> None:
        assert unused(engine, [np.zeros(KB).reshape(10, -1)[2:3][0, ::2]]) == 8 * KB - 400

    def test_a_base_that_somebody_has_reads_all(self, engine: str) -> None:
        base = np.zeros(KB)
        assert unused(engine, [base[:10]]) == 0
        assert unused(engine, [base, base[:10]]) == 0

    def test_views_that_read_all(self, engine: str) -> None:
        assert unused(engine, [np.zeros(KB)[::-1], np.zeros((10, 10)).T]) == 0
        assert unused(engine, np.split(np.zeros(KB), 4)) == 0

    def test_an_expanded_array_reads_few(self, engine: str) -> None:
        assert unused(engine, [np.broadcast_to(np.zeros(KB)[:10], (100, 10))]) == 8 * KB - 80

    def test_a_subclass_between(self, engine: str) -> None:
        class Labelled(np.ndarray):  # type: ignore[type-arg]
            pass

        assert unused(engine, [np.zeros(KB).view(Labelled)[:10].view(np.ndarray)]) == 8 * KB - 80

    def test_other_memory_is_not_judged(self, engine: str) -> None:
        assert unused(engine, [np.frombuffer(bytes(8 * KB))[:10]]) == 0


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 63), st.integers(0, 64), st.sampled_from([1, 2, 3, -1, -2])),
        min_size=1,
        max_size=5,
    )
)
def test_views_of_arrays_never_leave_more(engine: str, cuts: Any) -> None:
    base = np.arange(64, dtype=np.int64)
    views = [base[slice(start, stop, step)] for start, stop, step in cuts]
    left = 64 - len({int(value) for view in views for value in view})
    del base
    shown = unused(engine, views) // 8
    assert shown <= left
    if len(views) == 1:
        assert shown == left
