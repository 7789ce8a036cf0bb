from __future__ import annotations

import numpy as np
import pymannkendall
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leakscope.analysis.trends import (
    judge,
    mann_kendall,
    theil_sen,
    without_jump,
)

from leakscope.model.trend import Trend, TrendVerdict

values = st.lists(st.integers(-50, 50).map(float), min_size=4, max_size=40)


def trend_of(y: list[float], noise: float = 1.0) -> Trend:
    return judge(
        np.arange(len(y), dtype=float), np.array(y, float), unit="epoch", noise_bytes=noise
    )


def shape_of(y: list[float], noise: float = 1.0) -> str:
    return trend_of(y, noise).verdict.value


@given(values)
@settings(max_examples=150, deadline=None)
def test_mann_kendall_agrees_with_the_reference(y: list[float]) -> None:
    if len(set(y)) < 2:
        return
    ours, theirs = mann_kendall(np.array(y)), pymannkendall.original_test(y)
    assert ours.s == theirs.s
    assert ours.variance == pytest.approx(theirs.var_s)
    assert ours.z == pytest.approx(theirs.z)
    assert ours.p == pytest.approx(theirs.p, abs=1e-9)


@given(values)
@settings(max_examples=100, deadline=None)
def test_the_rate_is_sens_slope(y: list[float]) -> None:
    ours = theil_sen(np.arange(len(y), dtype=float), np.array(y))
    assert ours.rate == pytest.approx(pymannkendall.sens_slope(y).slope)
    assert ours.low <= ours.rate <= ours.high


@given(
    rate=st.floats(-1e6, 1e6),
    offset=st.floats(-1e9, 1e9),
    x=st.lists(st.integers(0, 1000), min_size=3, max_size=50, unique=True),
)
@settings(max_examples=60, deadline=None)
def test_a_straight_line_has_its_own_rate(rate: float, offset: float, x: list[int]) -> None:
    at = np.array(sorted(x), float)
    assert theil_sen(at, rate * at + offset).rate == pytest.approx(rate, rel=1e-6, abs=1e-3)


@given(st.integers(0, 1000), st.integers(20, 60))
@settings(max_examples=60, deadline=None)
def test_the_interval_holds_the_true_rate_under_noise_and_outliers(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.arange(n, dtype=float)
    y = 100.0 * x + rng.normal(0, 50, n)
    y[rng.integers(0, n, max(n // 20, 1))] += 1e5
    found = theil_sen(x, y)
    assert found.rate == pytest.approx(100.0, rel=0.15)
    assert found.low < found.high


@given(st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_noise_alone_is_hardly_ever_called_growth(seed: int) -> None:
    y = np.random.default_rng(seed).normal(1000, 100, 20)
    trend = judge(np.arange(20.0), y, unit="epoch", noise_bytes=1.0)
    assert trend.verdict not in {TrendVerdict.GROWING, TrendVerdict.STEPWISE}


def test_shapes_of_leaks() -> None:
    assert shape_of([0, 10, 20, 30]) == "growing"
    assert shape_of([0, 10, 20, 30, 40, 50, 60, 70]) == "growing"
    assert shape_of([0, 9, 22, 30, 39, 53, 60, 68, 81]) == "growing"
    assert shape_of([0, 0, 30, 30, 30, 60, 60, 60, 90, 90, 90, 120]) == "stepwise"
    assert shape_of([7] * 8 + [17, 27, 37, 47, 57, 67]) == "growing"


def test_a_late_leak_is_priced_from_where_it_starts() -> None:
    assert trend_of([7.0] * 8 + [17, 27, 37, 47, 57, 67]).bytes_per_unit == pytest.approx(10)


def test_shapes_that_are_no_leaks() -> None:
    assert shape_of([50] * 10) == "flat"
    assert shape_of([90, 80, 70, 60, 50]) == "flat"
    assert shape_of([0, 100, 0, 100, 0, 100, 0, 100]) in {"sawtooth", "flat"}
    assert shape_of([0, 50, 100, 60, 110, 160, 120, 170]) == "sawtooth"
    assert shape_of([0, 10, 20, 30, 40, 50, 50, 50, 50, 50]) == "bounded"
    assert shape_of([0, 0, 0, 0, 100, 100, 100, 100, 100]) == "bounded"
    assert shape_of([0, 0, 0, 0, 0, 0, 0, 0, 100, 100]) == "bounded"
    assert shape_of([100 * (1 - 2.718 ** (-i / 3)) for i in range(14)]) == "bounded"
    assert shape_of([0, 10, 20]) == "inconclusive"
    assert shape_of([0, 90, 100, 110]) == "inconclusive"


def test_growth_below_the_noise_floor_is_flat() -> None:
    assert shape_of([0, 1, 2, 3, 4, 5], noise=10) == "flat"


def test_a_jump_neither_makes_nor_hides_a_leak() -> None:
    leak = [0.0, 10, 20, 30, 1040, 1050, 1060, 1070]
    assert shape_of(leak) == "growing"
    assert trend_of(leak).bytes_per_unit == pytest.approx(10)
    assert shape_of([0, 0, 0, 0, 1000, 1000, 1001, 1000]) == "bounded"
    level = without_jump(np.array(leak))
    assert level[-1] == pytest.approx(70)
    assert without_jump(np.arange(8.0)).tolist() == list(range(8))


def test_a_rise_over_much_work_is_no_jump() -> None:
    seldom = np.array([0.0, 10, 20, 30, 40, 400])
    assert without_jump(2 * seldom, seldom).tolist() == (2 * seldom).tolist()
    jump = 2 * seldom + np.array([0, 0, 0, 0, 0, 5000])
    assert without_jump(jump, seldom).tolist() == (2 * seldom).tolist()


def test_cut_by_hand_series_never_raise() -> None:
    for y in ([], [1.0], [1.0, 2.0], [1.0] * 4):
        assert trend_of(y).verdict in {TrendVerdict.INCONCLUSIVE, TrendVerdict.FLAT}
    same_x = judge(np.zeros(5), np.arange(5.0), unit="epoch", noise_bytes=0.0)
    assert same_x.verdict is TrendVerdict.INCONCLUSIVE


def looked_at(steps: int) -> np.ndarray:
    """Return the steps at which a phase without an end is looked at."""
    marks = [1.0]
    while marks[-1] * 1.35 <= steps:
        marks.append(max(marks[-1] + 1, float(int(marks[-1] * 1.35))))
    return np.array(marks)


@given(st.integers(1_000, 10**6), st.floats(0.1, 0.6))
@settings(max_examples=150, deadline=None)
def test_a_buffer_that_fills_before_the_last_third_of_a_long_phase_is_bounded(
    steps: int, full_at: float
) -> None:
    x = looked_at(steps)
    y = 4000.0 * np.minimum(x, full_at * steps)
    trend = judge(x, y, unit="step", noise_bytes=1 << 16)
    assert trend.verdict is TrendVerdict.BOUNDED, trend.reason


@given(st.integers(1_000, 10**6), st.integers(1, 12))
@settings(max_examples=150, deadline=None)
def test_what_grows_in_stairs_to_the_end_is_growth_however_seldom_it_is_looked_at(
    steps: int, stairs: int
) -> None:
    x = looked_at(steps)
    tread = steps // (8 * stairs)
    y = 4000.0 * tread * np.floor(x / tread)
    assert judge(x, y, unit="step", noise_bytes=1 << 16).verdict.value in {"growing", "stepwise"}


def test_two_looks_close_together_are_no_plateau() -> None:
    x = np.array([211.0, 316, 474, 711, 712])
    y = 14_000.0 * np.array([211.0, 316, 474, 711, 711])
    assert judge(x, y, unit="step", noise_bytes=1 << 16).verdict is TrendVerdict.STEPWISE
    ended = judge(np.array([*x[:4], 1100]), y, unit="step", noise_bytes=1 << 16)
    assert ended.verdict is TrendVerdict.BOUNDED


def test_two_looks_close_together_do_not_level_off() -> None:
    x = np.array([184.0, 233, 341, 430, 592, 838, 1141, 1149])
    validations = np.array([1.0, 1, 2, 2, 3, 5, 7, 7])
    rising = judge(x, 2.7e6 * validations, unit="boundary", noise_bytes=1 << 16)
    assert rising.verdict is TrendVerdict.STEPWISE, rising.reason
    filled = np.minimum(validations, 3.5) + 0.01 * validations
    saturated = judge(x, 2.7e6 * filled, unit="boundary", noise_bytes=1 << 16)
    assert saturated.verdict is TrendVerdict.BOUNDED, saturated.reason


@given(st.integers(1_000, 10**6), st.floats(3.0, 12.0))
@settings(max_examples=150, deadline=None)
def test_a_cache_that_saturates_is_bounded_however_seldom_it_is_looked_at(
    steps: int, lives: float
) -> None:
    x = looked_at(steps)
    y = 14e6 * (1 - np.exp(-x * lives / steps))
    trend = judge(x, y, unit="step", noise_bytes=1 << 16)
    assert trend.verdict is TrendVerdict.BOUNDED, trend.reason
