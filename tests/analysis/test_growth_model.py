"""The growth model: what every series must fulfil, and named shapes."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakscope.analysis.growth import judge_growth
from leakscope.model.trend import Reason, Trend, TrendVerdict

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from growth_shapes import (
    LENGTHS,
    LOOKS,
    POPULATIONS,
    SHAPES,
    Shape,
    count,
    count_population,
    is_wrong,
    series_of,
)

LEAKS = [shape for shape in SHAPES if shape.truth == "leak"]
ARBITRARY = {"steps at random", "allocator plateaus", "noise", "drift under noise"}
"""Shapes that chance makes look like others."""
CERTAIN = [shape for shape in SHAPES if shape.name not in ARBITRARY]
ALIASED = {"sawtooth after a fill"}
"""Teeth whose lowest readings every second reading may miss, as if they rose with the fill."""

rises = st.lists(st.integers(0, 100), min_size=4, max_size=40)
readings = st.lists(st.integers(0, 1000), min_size=0, max_size=40)
seeds = st.integers(0, 10_000)


def judged(y: list[float] | np.ndarray, x: np.ndarray | None = None, noise: float = 0.0) -> Trend:
    values = np.array(y, dtype=np.float64)
    return judge_growth(
        np.arange(len(values), dtype=float) if x is None else x, values, noise=noise
    )


@given(readings, st.floats(0.01, 1e6), st.integers(-1000, 10**9), st.integers(0, 20))
def test_bytes_in_other_units_and_above_another_level_are_judged_alike(
    y: list[float], scale: float, shift: int, noise: int
) -> None:
    first = judged(y, noise=noise)
    power = 2.0 ** round(np.log2(scale))  # exact, so that ties stay ties
    other = judged(np.array(y, dtype=float) * power + shift * power, noise=noise * power)
    assert (first.verdict, first.reason) == (other.verdict, other.reason)


@given(readings, st.integers(-3, 20), st.integers(-1000, 10**6))
def test_work_in_other_units_and_from_another_count_on_is_judged_alike(
    y: list[float], scale: int, shift: int
) -> None:
    x = np.arange(len(y), dtype=float)
    first, other = judged(y), judged(y, (x + shift) * 2.0**scale)
    assert (first.verdict, first.reason) == (other.verdict, other.reason)


@given(rises)
def test_more_of_the_same_never_turns_growing_into_bounded(gains: list[int]) -> None:
    once = np.cumsum(gains)
    if judged(once).is_growing:
        assert not judged(np.cumsum([*gains, *gains])).is_bounded


@pytest.mark.parametrize("shape", LEAKS, ids=lambda shape: shape.name)
@given(seeds, st.sampled_from(LENGTHS[1:4]))
def test_a_leak_that_goes_on_as_before_is_never_called_bounded(
    shape: Shape, n: int, seed: int
) -> None:
    x, y = series_of(shape, n, 0.02, seed)
    if judge_growth(x, y).is_growing:
        step, gain = x[-1] - x[0] + np.diff(x).mean(), y[-1] - y[0] + 1 / n
        twice = judge_growth(np.append(x, x + step), np.append(y, y + gain))
        assert not twice.is_bounded


@pytest.mark.parametrize(
    "shape", [s for s in CERTAIN if s.name not in ALIASED], ids=lambda shape: shape.name
)
@given(seeds)
def test_every_second_reading_never_tells_the_opposite(shape: Shape, seed: int) -> None:
    x, y = series_of(shape, 120, 0.0, seed)
    all_of_it, thinned = judge_growth(x, y).verdict, judge_growth(x[::2], y[::2]).verdict
    assert {all_of_it, thinned} != {TrendVerdict.GROWING, TrendVerdict.BOUNDED}


@given(st.integers(20, 120), st.integers(2, 4), st.floats(0, 50), seeds)
def test_teeth_do_not_hide_a_leak(n: int, period: int, height: float, seed: int) -> None:
    leak, phase = np.arange(n), np.random.default_rng(seed).integers(period)
    teeth = height * ((np.arange(n) + phase) % period)
    assert not judged(leak + teeth).is_bounded
    if n >= 60:
        assert judged(leak + teeth).is_growing


@given(rises)
def test_what_only_falls_is_bounded(gains: list[int]) -> None:
    assert judged(np.cumsum(gains)[::-1]).is_bounded


@given(readings)
def test_a_series_and_its_reverse_do_not_both_grow(y: list[float]) -> None:
    assert not (judged(y).is_growing and judged(y[::-1]).is_growing)


@given(readings, readings)
def test_readings_that_are_missing_or_of_the_same_moment_change_nothing(
    y: list[float], again: list[float]
) -> None:
    x = np.arange(len(y), dtype=float)
    looked_twice = np.repeat(x, 2)
    values = np.repeat(np.array(y, dtype=float), 2)
    values[1::2] += 5  # a second look, at what goes at once
    gaps_x, gaps_y = np.append(looked_twice, 1e6), np.append(values, np.nan)
    assert judge_growth(gaps_x, gaps_y) == judge_growth(x, np.array(y, dtype=float))


@pytest.mark.parametrize("shape", CERTAIN, ids=lambda shape: shape.name)
@pytest.mark.parametrize("n", LENGTHS)
def test_an_exact_shape_is_never_judged_wrongly(shape: Shape, n: int) -> None:
    found = count(shape, n, 0.0, seeds=20)
    assert not [verdict for verdict in found if is_wrong(shape, verdict)]


def test_in_noise_few_are_judged_wrongly() -> None:
    cases = [(s, n, noise) for s in SHAPES for n in LENGTHS[:-1] for noise in (0.02, 0.1)]
    found = [(shape, count(shape, n, noise, seeds=10)) for shape, n, noise in cases]
    wrong = sum(k for shape, c in found for verdict, k in c.items() if is_wrong(shape, verdict))
    assert wrong <= 0.015 * 10 * len(cases)


def test_populations_are_seldom_accused_and_their_leaks_hardly_ever_acquitted() -> None:
    found = {"bounded": Counter[TrendVerdict](), "leak": Counter[TrendVerdict]()}
    for _, truth, population in POPULATIONS:
        for looks in LOOKS.values():
            found[truth] += count_population(population, looks, seeds=20)
    bounded, leak = found["bounded"], found["leak"]
    assert bounded[TrendVerdict.GROWING] <= 0.06 * bounded.total()
    assert leak[TrendVerdict.BOUNDED] <= 0.005 * leak.total()
    assert leak[TrendVerdict.GROWING] >= 0.65 * leak.total()


def test_readings_that_climb_through_ever_later_teeth_tell_of_no_leak() -> None:
    """A list of sixty items that is emptied each epoch, read at ever larger distances."""
    steps = np.array([0, 1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 94, 141, 190, 240], dtype=float)
    items = np.array([4, 4, 8, 12, 16, 24, 36, 52, 16, 52, 48, 12, 16, 24, 40, 60], dtype=float)
    judged = judge_growth(steps, items * 128 * 1024, noise=4096)
    assert (judged.verdict, judged.reason) == (TrendVerdict.INCONCLUSIVE, Reason.SCATTERED)
    beyond = judge_growth(steps, (items + 2 * steps) * 128 * 1024, noise=4096)
    assert beyond.is_growing


def test_a_second_look_at_the_end_is_no_rest() -> None:
    """At the end of the last phase and at the end of the run, nothing was done in between."""
    items = np.array([7.56, 10.13, 15.11, 20.08, 20.08])
    for end in (814, 816, 820):
        assert judged(items, np.array([304.0, 408, 610, 814, end])).is_growing
    rested = judged(items, np.array([304.0, 408, 610, 814, 1050]))
    assert not rested.is_growing


def test_what_may_be_one_more_tooth_does_not_grow() -> None:
    growth = judged([20, 300, 40, 330, 50, 60, 150, 260, 380])
    assert (growth.verdict, growth.reason) == (TrendVerdict.INCONCLUSIVE, Reason.SCATTERED)
    assert judged([20, 300, 40, 330, 50, 60, 150, 260, 380, 500, 620, 740, 860]).is_growing


def test_what_was_released_at_the_beginning_does_not_hide_a_long_rise() -> None:
    assert judged([140, 136, *np.linspace(130, 142, 40)]).is_growing


def test_a_leak_after_a_steep_warm_up_has_its_own_rate() -> None:
    growth = judged([*np.linspace(0, 300, 8), *(300 + 2.0 * np.arange(1, 30))])
    assert growth.is_growing
    assert growth.bytes_per_unit == pytest.approx(2.0)
    assert growth.tail_from in {7, 8}
    assert growth.gained_before == pytest.approx(300, rel=0.01)


def test_what_filled_up_and_rests_is_bounded_from_where_it_rests() -> None:
    growth = judged([1, 2, 3, 4, 5, 7, 7, 7], np.array([0.0, 1, 2, 3, 4, 6, 9, 10]))
    assert (growth.verdict, growth.reason) == (TrendVerdict.BOUNDED, Reason.STOPPED)
    assert growth.tail_from == 6


def test_a_rest_like_those_before_ends_no_staircase() -> None:
    steps = np.repeat(np.arange(6), 5)
    assert judged(steps).is_growing
    assert judged([*steps, 6, 6, 6, 6]).is_growing


def test_a_rest_much_longer_than_those_before_does() -> None:
    steps = np.repeat(np.arange(6), 5)
    assert judged([*steps, *np.full(15, 6)]).is_bounded


def test_three_equal_readings_are_bounded() -> None:
    assert judged([7, 7, 7]).reason is Reason.UNCHANGED


def test_two_readings_tell_nothing() -> None:
    assert judged([1, 2]).reason is Reason.TOO_FEW


def test_a_step_at_the_end_is_left_open() -> None:
    growth = judged([0, 0, 0, 0, 0, 0, 0, 0, 0, 5])
    assert growth.verdict is TrendVerdict.INCONCLUSIVE
    assert growth.more_work is not None and growth.more_work > 0


@given(st.integers(3, 4), st.floats(0.1, 100))
def test_as_much_more_work_as_it_asks_for_decides(n: int, rate: float) -> None:
    short = judged(rate * np.array([0, 1, 3.5, 4][:n]))
    assert short.reason in {Reason.SHORT_RISE, Reason.SCATTERED}
    assert short.more_work is not None
    longer = n + int(np.ceil(short.more_work))
    assert judged(rate * np.arange(longer)).is_growing


def test_growth_that_slows_down_says_so_and_forecasts_by_its_end() -> None:
    growth = judged([*np.arange(0, 40, 2), *(40 + 0.6 * np.arange(20))][:40])
    steady = judged(np.arange(40))
    assert steady.late_bytes_per_unit == pytest.approx(steady.bytes_per_unit)
    assert growth.is_growing
    assert growth.late_bytes_per_unit is not None and growth.late_bytes_per_unit < 1


def test_noise_bytes_are_no_growth() -> None:
    assert judged([0, 1, 2, 3, 4, 5, 6], noise=10).reason is Reason.UNCHANGED
    assert judged([0, 10, 20, 30, 40, 50, 60], noise=10).is_growing


@pytest.mark.parametrize("readings", [(1, 1, 5, 5), (1, 5, 5), (1, 3, 5, 5)])
def test_a_jump_and_a_rest_of_two_readings_may_be_the_first_steps_of_a_staircase(
    readings: tuple[int, ...],
) -> None:
    single = judged([float(value) for value in readings])
    assert single.verdict is TrendVerdict.INCONCLUSIVE
    assert single.net_bytes == 4.0
    assert single.more_work is not None


FILLED = [(0, 132055), (8, 137742), (23, 141169), (31, 142153), (38, 143008), (49, 144227),
          (60, 145445), (88, 145449), (104, 145612), (138, 145614), (172, 145615),
          (232, 145618), (296, 145618)]  # fmt: skip
BENT = [(0, 132087), (2, 135779), (14, 139766), (26, 141541), (39, 142981), (46, 143866),
        (52, 144603), (63, 145488), (74, 145489), (95, 145593), (106, 145665), (125, 145667),
        (144, 145667), (167, 145667), (195, 145671), (256, 145671)]  # fmt: skip
"""KiB in use over steps, of two runs of a program whose memory rests once its buffer is full."""


@pytest.mark.parametrize("looks", [FILLED, BENT], ids=["one jump", "two small rises"])
def test_what_rises_a_little_as_it_comes_to_rest_has_stopped(looks: list[tuple[int, int]]) -> None:
    x, kib = np.array(looks, dtype=np.float64).T
    found = judged(1024 * kib, x, noise=65_536)
    assert (found.verdict, found.reason) == (TrendVerdict.BOUNDED, Reason.STOPPED)


FEW = np.array([3.0, 4.0, 5.1, 7.1, 9.2, 12.3, 14.4])
"""Seconds of the looks at a short run without a loop."""


@pytest.mark.parametrize(
    ("last", "verdict"),
    [((2.14e6, 2.33e6), TrendVerdict.INCONCLUSIVE), ((2.01e6, 2.02e6), TrendVerdict.BOUNDED)],
    ids=["rises on", "rests"],
)
def test_irregular_growth_that_goes_on_more_slowly_has_not_stopped(
    last: tuple[float, float], verdict: TrendVerdict
) -> None:
    """Entries that come by chance scatter, and a few of them are less than that scatter."""
    found = judged([0.82e6, 1.12e6, 1.34e6, 1.72e6, 2.0e6, *last], FEW, noise=4096)
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("late", "grows"),
    [((953, 1090, 1103), False), ((1250, 1500, 1520), True)],
    ids=["entries that expire", "a leak with a release"],
)
def test_what_was_about_as_high_in_the_first_half_is_not_accused(
    late: tuple[int, ...], grows: bool
) -> None:
    work = np.array([303, 403, 505, 709, 912, 1217, 1522, 1542], dtype=float)
    kib = np.array([616, 866, 1042, 928, 891, *late], dtype=float)
    found = judged(1024 * kib, work, noise=4096)
    assert found.is_growing is grows
    assert not found.is_bounded


def test_one_rise_at_the_last_look_is_no_growth_however_long_ago_the_one_before_was() -> None:
    work = np.array([1, 5, 6, 8, 10, 12, 13, 24, 25, 37, 46, 145, 481], dtype=float)
    assert not judged([0.0] * 12 + [5e6], work, noise=4096).is_growing
    assert judged(work * 1e5, work, noise=4096).is_growing


def test_a_list_that_is_refilled_each_epoch_does_not_grow_by_a_late_look_at_it() -> None:
    work = np.array([1, 8, 10, 12, 13, 14, 16, 18, 20, 24, 25, 26, 37, 42, 61, 361], dtype=float)
    filled = [0, 3.5, 4.5, 5, 0, 0.5, 1.5, 2.5, 3.5, 5, 0, 0.5, 0, 2.5, 0, 5]
    assert not judged(np.array(filled) * 1e6, work, noise=4096).is_growing


EARLY = np.array([1, 2, 3, 4, 6, 9, 13, 15, 19, 27, 180], dtype=float)
"""Looks of a short run: all but the last in its first part."""


def test_what_may_have_filled_up_while_nobody_looked_is_left_open() -> None:
    left_open = judged(np.minimum(EARLY, 100) * 65_536, EARLY, noise=4096)
    assert (left_open.verdict, left_open.reason) == (TrendVerdict.INCONCLUSIVE, Reason.SETTLING)
    assert left_open.more_work == pytest.approx(179, rel=0.01)


def test_what_rose_as_before_while_nobody_looked_grows() -> None:
    assert judged(EARLY * 65_536, EARLY, noise=4096).is_growing
    in_steps = np.floor(EARLY / 9) * 589_824
    assert judged(in_steps, EARLY, noise=4096).reason is not Reason.SETTLING


def test_a_rise_after_the_last_release_is_followed_where_readings_scatter() -> None:
    """Once no valley comes any more, what is read is what is kept."""
    teeth = [227.0 - 4 * (n % 9 == 0) + 0.4 * (n % 2) for n in range(200)]
    rise = [227.0 + 0.08 * n + 0.4 * (n % 2) for n in range(0, 220, 10)]
    x = np.array([*range(200), *range(200, 420, 10)], dtype=float)
    growth = judged(np.array([*teeth, *rise]), x, noise=1.0)
    assert growth.verdict is TrendVerdict.GROWING
    assert growth.tail_from >= 150
    assert growth.bytes_per_unit == pytest.approx(0.08, rel=0.1)


def test_teeth_that_go_on_to_the_end_do_not_grow() -> None:
    y = [227.0 - 4 * (n % 9 == 0) + 0.4 * (n % 2) for n in range(420)]
    assert judged(y, noise=1.0).is_bounded


def test_garbage_that_waits_somewhat_longer_than_before_does_not_grow() -> None:
    """The last tooth is half as long again as the others, and as high."""
    releases = np.array([0, 30, 60, 90, 120, 150])
    n = np.arange(195)
    since = n - releases[np.searchsorted(releases, n, side="right") - 1]
    y = 200 + 0.2 * since + 0.3 * (n % 2)
    assert not judged(y, noise=1.0).is_growing


SELDOM_AT_LAST = np.array([*range(0, 62, 2), 80], dtype=float)


@pytest.mark.parametrize(
    ("last", "verdict"),
    [(64.0, TrendVerdict.INCONCLUSIVE), (80.0, TrendVerdict.GROWING), (75.0, TrendVerdict.GROWING)],
)
def test_what_rose_by_far_less_where_it_was_read_seldom_at_last_may_have_stopped(
    last: float, verdict: TrendVerdict
) -> None:
    values = np.append(SELDOM_AT_LAST[:-1], last)
    assert judged(values, SELDOM_AT_LAST).verdict is verdict


def test_of_a_staircase_the_next_step_may_be_due() -> None:
    values = SELDOM_AT_LAST // 15 * 15
    values[-1] = values[-2] + 7  # of 15 a stair
    assert judged(values, SELDOM_AT_LAST).reason is not Reason.SETTLING


@pytest.mark.parametrize("lows", [1, 2])
def test_what_is_given_up_at_the_very_end_alone_is_not_bounded(lows: int) -> None:
    values = [*(10.0 * n for n in range(40)), *[0.0] * lows]
    assert judged(values, noise=1.0).verdict is TrendVerdict.INCONCLUSIVE


def test_what_was_released_before_and_at_the_end_is_bounded() -> None:
    values = [10.0 * (n % 13) for n in range(40)]
    assert judged([*values, 0.0], noise=1.0).is_bounded
