"""A step at which nothing is due costs next to nothing: ratios, measured in one go."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

import pytest
from fake_session import FakeSession

EMPTY_CALLS = 150
"""20 microseconds are some 400 empty calls of a Python function; a step costs about 40."""


def best(work: Callable[[], object], rounds: int = 100, repeats: int = 200) -> float:
    """Return the least processor time, of rounds so short that few are interrupted."""
    times = []
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(repeats):
            work()
        times.append(time.thread_time() - began)
    return min(times)


@pytest.fixture
def idle_run():
    """A session in the midst of a training pass, with nothing due for ever."""
    run = FakeSession()
    tracker, hear = run.session.tracker, run.session.gate.hear
    hear(lambda: tracker.loader_begin(1, site=("train.py", 1), loader=1))
    hear(tracker.loader_next, 1)
    schedule = run.session._schedule
    schedule._next_record = schedule._next_inside = tracker.phase.plan.mark = inf
    yield run
    run.close()


def test_an_idle_step_costs_little_more_than_calling_functions(idle_run):
    hear, tracker = idle_run.session.gate.hear, idle_run.session.tracker
    written = idle_run.writer.count

    def step() -> None:
        hear(tracker.optimizer_step, 9)
        hear(tracker.loader_next, 1)

    assert best(step) < EMPTY_CALLS * best(lambda: None)
    assert tracker.step > 1000
    assert idle_run.writer.count == written


def test_an_idle_step_without_a_loader_costs_as_little():
    run = FakeSession()
    run.steps(2, 0.1)
    schedule = run.session._schedule
    schedule._next_record = schedule._next_inside = run.session.tracker.phase.plan.mark = inf
    hear, tracker = run.session.gate.hear, run.session.tracker
    assert best(lambda: hear(tracker.optimizer_step, 9)) < EMPTY_CALLS * best(lambda: None)


def test_events_of_another_thread_cost_less_than_heard_ones(idle_run):
    gate, tracker = idle_run.session.gate, idle_run.session.tracker
    heard = best(lambda: gate.hear(tracker.optimizer_step, 9))
    gate.thread += 1
    assert best(lambda: gate.hear(tracker.optimizer_step, 9)) < 1.5 * heard
