"""Boundaries by time: when they are made, by which thread, and what waits for them."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from leakscope.capture import clock as module
from leakscope.capture import policy
from leakscope.capture.budget import Costs
from leakscope.capture.clock import BoundaryClock, CostClock
from leakscope.capture.dispatch import EventDispatcher, Guard
from leakscope.capture.unobservable import changes_graphs
from leakscope.heap.pausing import frames_of_other_threads


class Program:
    """What a clock sees of a program: the time, and how long it has been idle."""

    def __init__(self) -> None:
        self.now = self.idle = 0.0
        self.reached: list[float] = []
        self.clock = BoundaryClock(
            lambda: self.reached.append(self.now), lambda: self.idle, lambda: self.now
        )

    def pass_seconds(self, seconds: float, *, works: bool = False) -> None:
        for _ in range(round(seconds / policy.TIME_WAKES_SECONDS)):
            self.now += policy.TIME_WAKES_SECONDS
            self.idle = 0.0 if works else self.idle + policy.TIME_WAKES_SECONDS
            self.clock.tick()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_idle_program_reaches_boundaries_ever_further_apart() -> None:
    program = Program()
    program.pass_seconds(600)
    gaps = [b - a for a, b in zip(program.reached, program.reached[1:], strict=False)]
    assert program.reached[0] == pytest.approx(policy.TIME_IDLE_SECONDS, abs=0.1)
    assert gaps[0] == pytest.approx(policy.TIME_SPACING_SECONDS, abs=0.1)
    assert gaps[-1] > 5 * gaps[0]
    assert len(program.reached) < 250


def test_program_with_boundaries_of_its_own_gets_none() -> None:
    program = Program()
    program.pass_seconds(60, works=True)
    assert program.reached == []
    program.pass_seconds(policy.TIME_IDLE_SECONDS + 1)
    assert program.reached


def test_a_look_at_the_threads_is_no_garbage() -> None:
    program = Program()
    while gc.collect():  # what earlier tests left may take several
        pass
    gc.disable()
    try:
        program.pass_seconds(30)
        assert program.reached
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_import_of_the_program_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_importing", lambda frame: True)
    program = Program()
    program.pass_seconds(policy.TIME_SETUP_SECONDS - 1)
    assert program.reached == []
    program.pass_seconds(2 + policy.TIME_SPACING_SECONDS)
    assert program.reached


def test_thread_is_not_found_in_threading_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "TIME_IDLE_SECONDS", 0.0)
    before, threads = threading.enumerate(), len(sys._current_frames())
    began = time.monotonic()
    seen: list[int] = []
    clock = BoundaryClock(
        lambda: seen.append(threading.get_ident()), lambda: 1.0, lambda: time.monotonic() - began
    )
    clock.start()
    wait_for(lambda: bool(seen))
    assert seen[0] != threading.get_ident()
    assert threading.enumerate() == before
    clock.stop()
    wait_for(lambda: len(sys._current_frames()) <= threads)


def test_clock_that_nobody_stops_ends_with_its_session() -> None:
    threads = len(sys._current_frames())
    clock = BoundaryClock(lambda: None, lambda: 0.0, lambda: 0.0)
    clock.start()
    gone = weakref.ref(clock)
    del clock
    gc.collect()
    wait_for(lambda: gone() is None and len(sys._current_frames()) <= threads)


def test_failing_boundary_ends_the_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "TIME_IDLE_SECONDS", 0.0)
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise ValueError("of our own")

    clock = BoundaryClock(fail, lambda: 1.0, time.monotonic)
    clock.start()
    wait_for(lambda: bool(calls))
    clock.stop()
    assert calls == [1]


def test_event_of_the_program_waits_for_the_clock_and_is_not_lost() -> None:
    gate = EventDispatcher(Guard(), Costs())
    gate.open()
    heard: list[str] = []
    gate.dispatch(heard.append, "first")  # the calling thread is heard from now on
    begun, end = threading.Event(), threading.Event()

    def look() -> None:
        begun.set()
        end.wait(10)
        heard.append("clock")

    thread = threading.Thread(target=gate.take_turn, args=(look,))
    thread.start()
    begun.wait(10)
    threading.Timer(0.1, end.set).start()
    gate.dispatch(heard.append, "second")
    thread.join()
    assert heard == ["first", "clock", "second"]
    assert gate.turned_away == 0


def test_clock_gives_way_to_an_event_that_is_heard() -> None:
    gate = EventDispatcher(Guard(), Costs())
    gate.open()
    results: list[bool] = []

    def event() -> None:
        thread = threading.Thread(target=lambda: results.append(gate.take_turn(lambda: None)))
        thread.start()
        thread.join()

    gate.dispatch(event)
    assert results == [False]


def test_backward_pass_of_another_thread_is_seen() -> None:
    torch = pytest.importorskip("torch")
    inside, leave = threading.Event(), threading.Event()

    def hold(gradient: object) -> None:
        inside.set()
        leave.wait(10)

    def work() -> None:
        value = torch.ones(2, requires_grad=True)
        doubled = value * 2
        doubled.register_hook(hold)
        doubled.sum().backward()

    assert not changes_graphs(frames_of_other_threads())
    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(10)
    assert changes_graphs(frames_of_other_threads())
    leave.set()
    thread.join()


def test_only_in_its_own_thread_waiting_costs_the_program_nothing() -> None:
    """There the program goes on meanwhile; where its own thread waits it stands still."""
    cost, spent = CostClock(time.perf_counter, time.thread_time), []

    def wait() -> None:
        began = cost()
        time.sleep(0.2)
        spent.append(cost() - began)

    clock = BoundaryClock(wait, lambda: 1e9, lambda: 1e9)
    clock.start()
    wait_for(lambda: bool(spent))
    clock.stop()
    alongside = spent[0]
    wait()
    assert alongside < 0.1
    assert spent[-1] >= 0.19
