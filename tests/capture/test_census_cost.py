"""What a census cost in a worker is known to those that come after it."""

from __future__ import annotations

import os

import pytest

from leakscope.capture.budget import CensusCost, Costs, Due, costs_with


def test_nothing_is_known_before_a_worker_has_measured():
    cost = CensusCost()
    assert cost.seconds == 0
    cost.publish(Costs())
    assert cost.seconds == 0
    assert not costs_with(cost.seconds).knows(Due.FOCUSED)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes can't be forked here")
def test_what_a_forked_process_has_found_is_known_to_its_parent():
    cost = CensusCost()
    child = os.fork()
    if child == 0:
        cost.publish(costs_with(0.7))
        os._exit(0)
    os.waitpid(child, 0)
    assert cost.seconds == pytest.approx(0.7)
    later = costs_with(cost.seconds)
    assert later.knows(Due.FOCUSED)
    assert later.expect(Due.FOCUSED) == pytest.approx(0.7)


@pytest.mark.parametrize("worked", [0.2, 0.02])
def test_what_it_waited_for_others_is_not_handed_on(worked):
    cost, costs = CensusCost(), Costs()
    costs.sample(Due.FOCUSED, 0.6)
    costs.learn_pace(0.6, worked)
    cost.publish(costs)
    assert cost.seconds == pytest.approx(worked)
