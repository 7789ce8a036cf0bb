"""What measuring is expected to cost, before and after it was measured."""

from leakscope.instrument.costs import Costs, Due


def test_a_walk_that_was_never_measured_is_guessed_from_the_size_of_the_heap():
    small, large = Costs(lambda: 500_000), Costs(lambda: 50_000_000)
    assert small.expect(Due.FULL) < 1.0
    assert large.expect(Due.FULL) > 10.0


def test_libraries_alone_do_not_make_a_focused_walk_dear():
    assert Costs(lambda: 1_000_000).expect(Due.FOCUSED) < 0.05
    assert Costs(lambda: 50_000_000).expect(Due.FOCUSED) > 1.0


def test_what_was_measured_counts_more_than_the_guess():
    costs = Costs(lambda: 50_000_000)
    costs.sample(Due.FULL, 0.5)
    assert costs.expect(Due.FULL) == 0.5
    costs.sample(Due.FULL, 1.0)
    assert 0.5 < costs.expect(Due.FULL) < 1.0
