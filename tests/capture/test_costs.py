"""What measuring is expected to cost, before and after it was measured."""

import pytest

from leakscope.capture.budget import Costs, Due
from leakscope.capture.policy import MOST_SLOWED


def test_a_walk_that_was_never_measured_is_guessed_from_the_size_of_the_heap():
    small, large = Costs(lambda: 500_000), Costs(lambda: 50_000_000)
    assert small.expect(Due.WHOLE) < 1.0
    assert large.expect(Due.WHOLE) > 10.0


def test_a_walk_that_goes_on_from_a_seal_is_expected_to_take_a_part_of_a_whole_one():
    costs = Costs(lambda: 500_000)
    costs.sample(Due.WHOLE, 0.4)
    assert costs.expect(Due.FULL) == pytest.approx(0.1)
    costs.sample(Due.FULL, 0.02)
    assert costs.expect(Due.FULL) == pytest.approx(0.02)
    assert costs.expect(Due.WHOLE) == pytest.approx(0.4)


def test_a_check_tells_what_a_whole_walk_takes():
    costs = Costs(lambda: 500_000)
    costs.sample(Due.WHOLE, 0.4)
    costs.sample(Due.FULL, 0.1)
    assert costs.expect(Due.CHECK) == pytest.approx(0.5)
    costs.sample(Due.CHECK, 0.9)
    assert costs.expect(Due.FULL) == pytest.approx(0.1)
    assert 0.4 < costs.expect(Due.WHOLE) < 0.8


def test_libraries_alone_do_not_make_a_focused_walk_dear():
    assert Costs(lambda: 1_000_000).expect(Due.FOCUSED) < 0.05
    assert Costs(lambda: 50_000_000).expect(Due.FOCUSED) > 1.0


def test_what_was_measured_counts_more_than_the_guess():
    costs = Costs(lambda: 50_000_000)
    costs.sample(Due.WHOLE, 0.5)
    assert costs.expect(Due.WHOLE) == 0.5
    costs.sample(Due.WHOLE, 1.0)
    assert 0.5 < costs.expect(Due.WHOLE) < 1.0


def test_how_busy_the_machine_is_shows_in_what_censuses_wait_for():
    costs = Costs()
    assert costs.slowed == 1.0
    costs.learn_pace(0.02, 0.02)
    assert costs.slowed == pytest.approx(1.0)
    for _ in range(20):
        costs.learn_pace(0.06, 0.02)
    assert costs.slowed == pytest.approx(3.0, rel=0.02)
    for _ in range(20):
        costs.learn_pace(0.02, 0.02)
    assert costs.slowed == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize(
    ("seconds", "worked", "slowed"), [(9.0, 0.0, MOST_SLOWED), (0.0, 0.1, 1.0)]
)
def test_clocks_that_disagree_slow_nothing_down_beyond_reason(seconds, worked, slowed):
    costs = Costs()
    costs.learn_pace(seconds, worked)
    assert costs.slowed == slowed
