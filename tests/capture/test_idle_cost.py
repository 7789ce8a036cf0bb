"""A step at which nothing is due costs next to nothing: a few calls of functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf

import pytest
from fake_session import FakeSession

MOST_CALLS = 28
"""Of functions of ours and of Python's, in a step at which nothing is due."""


def calls(work: Callable[[], object], repeats: int = 200) -> float:
    """Return how many functions a piece of work calls, on average."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    work()
    sys.setprofile(count)
    try:
        for _ in range(repeats):
            work()
    finally:
        sys.setprofile(None)
    return counted / repeats - 1


@pytest.fixture
def idle_run():
    """A session in the midst of a training pass, with nothing due for ever."""
    run = FakeSession()
    tracker, dispatch = run.session.tracker, run.session.gate.dispatch
    dispatch(lambda: tracker.loader_begin(1, site=("train.py", 1), loader=1))
    dispatch(tracker.loader_next, 1)
    schedule = run.session._schedule
    schedule._next_record = schedule._next_inside = tracker.phase.plan.mark = inf
    yield run


def test_an_idle_step_costs_little_more_than_calling_functions(idle_run):
    dispatch, tracker = idle_run.session.gate.dispatch, idle_run.session.tracker
    written = idle_run.writer.count

    def step() -> None:
        dispatch(tracker.optimizer_step, 9)
        dispatch(tracker.loader_next, 1)

    assert calls(step) <= 2 * MOST_CALLS
    assert tracker.step > 200
    assert idle_run.writer.count == written


def test_an_idle_step_without_a_loader_costs_as_little():
    run = FakeSession()
    run.steps(2, 0.1)
    schedule = run.session._schedule
    schedule._next_record = schedule._next_inside = run.session.tracker.phase.plan.mark = inf
    dispatch, tracker = run.session.gate.dispatch, run.session.tracker
    assert calls(lambda: dispatch(tracker.optimizer_step, 9)) <= MOST_CALLS


def test_events_of_another_thread_cost_less_than_heard_ones(idle_run):
    gate, tracker = idle_run.session.gate, idle_run.session.tracker
    heard = calls(lambda: gate.dispatch(tracker.optimizer_step, 9))
    gate.thread += 1
    assert calls(lambda: gate.dispatch(tracker.optimizer_step, 9)) < heard
