"""Round numbers on axes: few enough to read, on the axis, evenly apart, distinguished."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakscope.report.svg import byte_levels, clock_ticks, count_ticks, round_step, second_ticks

KIB, MIB, GIB = 1024, 1024**2, 1024**3
AXES = [clock_ticks, count_ticks, second_ticks]


@pytest.mark.parametrize(
    ("top", "names"),
    [
        (0.0, ["0", "1 B"]),
        (1.0, ["0", "1 B", "2 B"]),
        (700.0, ["0", "200 B", "400 B", "600 B", "800 B"]),
        (1.5 * KIB, ["0", "0.5 KiB", "1 KiB", "1.5 KiB", "2 KiB"]),
        (31.3 * MIB, ["0", "10 MiB", "20 MiB", "30 MiB", "40 MiB"]),
        (900 * MIB, ["0", "200 MiB", "400 MiB", "600 MiB", "800 MiB", "1,000 MiB"]),
        (7.4 * GIB, ["0", "2 GiB", "4 GiB", "6 GiB", "8 GiB"]),
    ],
)
def test_amounts_of_memory_are_round_in_their_unit(top: float, names: list[str]) -> None:
    assert [tick.text for tick in byte_levels(top).ticks] == names


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ((0.0, 25.0), ["0:00", "0:05", "0:10", "0:15", "0:20", "0:25"]),
        ((0.0, 0.5), ["0:00.0", "0:00.1", "0:00.2", "0:00.3", "0:00.4", "0:00.5"]),
        ((59.8, 60.3), ["0:59.8", "0:59.9", "1:00.0", "1:00.1", "1:00.2", "1:00.3"]),
        ((0.0, 7200.0), ["0:00", "30:00", "1:00:00", "1:30:00", "2:00:00"]),
        ((0.0, 10 * 86400.0), ["0:00", "48:00:00", "96:00:00", "144:00:00", "192:00:00",
                               "240:00:00"]),
    ],
)  # fmt: skip
def test_moments_are_round_on_the_clock(shown: tuple[float, float], names: list[str]) -> None:
    assert [tick.text for tick in clock_ticks(shown, 7)] == names


def test_counts_are_whole_and_their_thousands_parted() -> None:
    assert [tick.text for tick in count_ticks((0, 4400), 6)] == [
        "0", "1,000", "2,000", "3,000", "4,000",
    ]  # fmt: skip
    assert [tick.text for tick in count_ticks((1, 3), 6)] == ["1", "2", "3"]
    assert count_ticks((1.2, 1.4), 6) == []


def test_seconds_of_a_history_have_the_decimals_they_need() -> None:
    assert [tick.text for tick in second_ticks((0, 2.5), 6)] == [
        "0.0 s", "0.5 s", "1.0 s", "1.5 s", "2.0 s", "2.5 s",
    ]  # fmt: skip
    assert [tick.text for tick in second_ticks((0, 1.0), 4)][1] == "0.25 s"


@given(st.floats(0, 1e308))
def test_an_axis_of_amounts_reaches_its_highest(top: float) -> None:
    levels = byte_levels(top)
    assert levels.ceiling >= min(top, 1e290)
    assert levels.ticks[-1].at == pytest.approx(levels.ceiling)
    assert 2 <= len(levels.ticks) <= 7
    assert len({tick.text for tick in levels.ticks}) == len(levels.ticks)


@pytest.mark.parametrize("axis", AXES)
@given(start=st.floats(0, 1e6), length=st.floats(0.01, 1e7), most=st.integers(2, 8))
def test_ticks_are_few_and_on_the_axis(axis, start: float, length: float, most: int) -> None:
    shown = (start, start + length)
    ticks = axis(shown, most)
    assert len(ticks) <= most + 1
    assert all(shown[0] - length * 1e-6 <= t.at <= shown[1] + length * 1e-6 for t in ticks)
    gaps = [b.at - a.at for a, b in pairwise(ticks)]
    assert all(gap == pytest.approx(gaps[0], rel=1e-3) for gap in gaps)
    assert len({tick.text for tick in ticks}) == len(ticks)


@given(st.floats(1e-300, 1e300))
def test_a_round_step_is_the_next_one_up(rough: float) -> None:
    step = round_step(rough)
    assert rough * 0.999 <= step <= rough * 2.51
    assert math.isfinite(step)


@pytest.mark.parametrize("rough", [0.0, -1.0, math.inf, math.nan])
def test_a_step_of_no_length_is_a_step_all_the_same(rough: float) -> None:
    assert round_step(rough) == 1.0
