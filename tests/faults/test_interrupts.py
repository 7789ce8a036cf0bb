"""Ctrl-C reaches the program wherever it strikes, and leakscope goes on in order afterwards."""

from __future__ import annotations

import gc
import signal
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import fault_runs
import pytest

from leakscope.capture.budget import Costs
from leakscope.capture.dispatch import EventDispatcher, Guard
from leakscope.model.errors import is_interrupt
from leakscope.recording import open_run

STRUCK_AT_RANDOM = """
import gc, random, signal, sys, threading, tracemalloc

import leakscope
from leakscope.capture.session import current_session

sent, reached, unraisable = 0, 0, []
chance = random.Random(int(sys.argv[1]))
sys.unraisablehook = lambda told: unraisable.append(told.exc_type)


def strike(number, frame):
    global sent
    sent += 1
    raise KeyboardInterrupt


signal.signal(signal.SIGALRM, strike)
weights, kept, objects = [0.0] * 20, [], [[] for _ in range(150_000)]
with leakscope.profile(quiet=True) as scope:
    for epoch in scope.epochs(range(200)):
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.03))
            for step in scope.steps(range(20)):
                weights = [w - 0.1 * (w - step) for w in weights]
                kept.append(bytes(3000))
            with scope.phase("validation"):
                kept.append(bytes(30_000))
        except KeyboardInterrupt:
            reached += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    session = current_session()
    told = [gc.isenabled(), tracemalloc.is_tracing() and not session._windows.is_open]
    told += [session.gate.is_open, session.gate._busy]
    scope.mark("at last")
print("sent", sent, "reached", reached, "lost", len(unraisable))
print("collector", told[0], "stray tracing", told[1], "hears", told[2], "busy", told[3])
"""


@pytest.mark.parametrize("seed", [1, *(pytest.param(s, marks=pytest.mark.slow) for s in (2, 3, 4))])
def test_interrupts_at_random_moments_reach_the_program(seed: int, tmp_path: Path) -> None:
    words = fault_runs.run_words(STRUCK_AT_RANDOM, tmp_path, "--budget", "100%", "--no-report")
    ended = fault_runs.python(*words, str(seed), folder=tmp_path)
    fault_runs.assert_no_traceback_of_ours(ended)
    assert ended.code == 0, ended.err
    first, second = ended.out.splitlines()
    words_reported = first.split()
    assert int(words_reported[1]) > 20, "too few to tell anything"
    assert words_reported[3] == words_reported[1]
    assert second == "collector True stray tracing False hears True busy False"
    recording = open_run(tmp_path / "run").main
    at_last = next(m.boundary for m in recording.measurements if m.boundary.label == "at last")
    assert at_last.phase == "", "no phase was left open"
    assert recording.errors == []
    assert all("its boundary is missing" in lost.reason for lost in recording.damage)
    assert fault_runs.report_again(tmp_path)["run"]["ended"] == "completed"


OF_ITS_OWN = """
import signal
import leakscope


class Preempted(Exception):
    pass


def preempt(number, frame):
    raise {kind}("time is up")


signal.signal(signal.SIGALRM, preempt)
objects = [[] for _ in range(300_000)]
reached = 0
with leakscope.profile(quiet=True) as scope:
    for attempt in range(10):
        signal.setitimer(signal.ITIMER_REAL, 0.005 * (attempt + 1))
        try:
            with scope.phase("validation"):
                while True:
                    scope.mark("still here")
        except {kind}:
            reached += 1
print("reached", reached)
"""


@pytest.mark.parametrize(
    "kind",
    fault_runs.mostly_slow(
        ["Preempted", "TimeoutError", "SystemExit", "MemoryError"], "TimeoutError"
    ),
)
def test_what_a_signals_handler_raises_is_the_programs_own(kind: str, tmp_path: Path) -> None:
    program = OF_ITS_OWN.format(kind=kind)
    ended = fault_runs.recorded(program, tmp_path, "--budget", "100%", "--no-report")
    assert (ended.code, ended.out) == (0, "reached 10\n")
    recording = open_run(tmp_path / "run").main
    assert recording.errors == []
    assert recording.measurements[-1].boundary.phase == ""
    assert recording.end is not None


STRUCK_AT_EVERY_CALL = """
import contextlib, dis, inspect, sys

import leakscope
from leakscope.capture.session import current_session

struck = set()


def stack_of(frame):
    while frame.f_back is not None:
        yield frame
        frame = frame.f_back


def is_thrown_away(frame):
    # A generator that is thrown away is resumed too, but what strikes there is lost.
    if not frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_back.f_code in asking:
        return False
    instruction = frame.f_back.f_code.co_code[frame.f_back.f_lasti]
    return dis.opname[instruction] not in ("FOR_ITER", "SEND")


asking = {{
    contextlib._GeneratorContextManager.__enter__.__code__,
    contextlib._GeneratorContextManager.__exit__.__code__,
}}


class Strike:
    # At the first call that comes in a way in which none was struck yet.
    def __init__(self):
        self.where = ""

    def __call__(self, frame, event, arg):
        caller = frame.f_back
        if event != "call":
            return
        way = frame.f_code, caller.f_code, caller.f_lineno, caller.f_back and caller.f_back.f_lineno
        if way not in struck and not any(map(is_thrown_away, stack_of(frame))):
            sys.settrace(None)
            struck.add(way)
            self.where = f"{{frame.f_code.co_filename}}:{{frame.f_lineno}}"
            raise {kind}


def work():
    with scope.phase("validation"):
        for step in scope.steps(range(3)):
            kept.append(bytes(3000))
        scope.mark("here")


kept, times = [], 0
with leakscope.profile(quiet=True) as scope:
    session = current_session()
    while times < 10_000:
        times += 1
        strike, reached = Strike(), False
        try:
            sys.settrace(strike)
            work()
        except {kind}:
            reached = True
        finally:
            sys.settrace(None)
        if not strike.where:
            break
        if not reached:
            print("lost at", strike.where)
        if session.tracker.phase is not None or session.gate._busy:
            print("in disorder after", strike.where)
            while session.tracker.phase is not None:
                session.tracker.phase_end(session.tracker.phase)
closing = [code for code, *_ in struck if code.co_name == "_close"]
print("more than a hundred" if 100 < times < 10_000 else times, "closing", len(closing))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "TimeoutError"])
def test_an_interrupt_at_any_call_of_ours_reaches_the_program(kind: str, tmp_path: Path) -> None:
    program = STRUCK_AT_EVERY_CALL.format(kind=kind)
    ended = fault_runs.recorded(program, tmp_path, "--budget", "100%", "--no-report")
    assert (ended.code, ended.out) == (0, "more than a hundred closing 4\n"), ended.err
    assert open_run(tmp_path / "run").main.errors == []


TRAINING = """
import os, signal, traceback

import torch


def is_in_a_census(frame):
    while frame is not None:
        if "/leakscope/heap/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def strike(number, frame):
    # A thread could not: none runs while a census is taken.
    if is_in_a_census(frame):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.getsignal(signal.SIGINT)(number, frame)


def train():
    objects = [[] for _ in range(400_000)]
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    while True:
        layer(torch.ones(1, 4)).sum().backward()
        optimizer.step()


{start}
"""

STARTS = {
    "printed by Python": "train()",
    "printed by the program": (
        "try:\n    train()\nexcept KeyboardInterrupt:\n    traceback.print_exc()\n    os._exit(1)"
    ),
    "struck at another exception": (
        "try:\n    raise ValueError('the first')\nexcept ValueError:\n    train()"
    ),
    "raised by a handler": (
        "def preempt(number, frame):\n    raise TimeoutError\n"
        "signal.signal(signal.SIGINT, preempt)\ntrain()"
    ),
}


@pytest.mark.parametrize("start", fault_runs.mostly_slow(STARTS, "printed by the program"))
def test_the_traceback_of_an_interrupted_census_is_the_programs(start: str, tmp_path: Path) -> None:
    program = TRAINING.format(start=STARTS[start])
    words = fault_runs.run_words(program, tmp_path, "--quiet", "--no-report", "--budget", "100%")
    ended = fault_runs.python(*words, folder=tmp_path)
    assert ended.code, ended.out
    assert "in train\n    optimizer.step()\n" in ended.err
    assert "/leakscope/" not in ended.err
    assert ended.err.count("Traceback (most recent call last)") == 1 + ("the first" in program)
    assert ("in preempt" in ended.err) == ("preempt" in program)


def test_a_hook_keeps_the_traceback_of_what_the_program_raises(tmp_path: Path) -> None:
    program = """
import torch
from torch.utils.data import DataLoader


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise ValueError(index)


for batch in DataLoader(Data()):
    pass
"""
    plain = fault_runs.plainly(program, tmp_path)
    words = fault_runs.run_words(program, tmp_path, "--quiet", "--no-report")
    assert fault_runs.python(*words, folder=tmp_path) == plain
    assert "in __getitem__" in plain.err


def test_a_module_that_is_awaited_fails_with_the_traceback_that_it_has_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate/__init__.py").touch()
    (tmp_path / "accelerate/data_loader.py").write_text("raise KeyError('no such backend')\n")
    program = "import accelerate.data_loader"
    plain = fault_runs.plainly(program, tmp_path)
    words = fault_runs.run_words(program, tmp_path, "--quiet", "--no-report")
    assert fault_runs.python(*words, folder=tmp_path) == plain
    assert "in <module>\n    raise KeyError" in plain.err


def test_an_interrupt_keeps_what_it_came_upon_unless_that_is_ours() -> None:
    def event() -> None:
        try:
            raise LookupError("ours")
        except LookupError:
            signal.raise_signal(signal.SIGINT)

    gate = EventDispatcher(Guard(), Costs())
    gate.open()
    try:
        raise ValueError("the program's")
    except ValueError as first:
        with pytest.raises(KeyboardInterrupt) as caught:
            gate.dispatch(event)
        assert caught.value.__context__ is first
    names = [entry.name for entry in caught.traceback]
    assert names == ["test_an_interrupt_keeps_what_it_came_upon_unless_that_is_ours"]


class Handler:
    def method(self, number, frame):
        raise TimeoutError

    def __call__(self, *reported):
        raise TimeoutError


def nested(number, frame):
    Handler().method(None, None)


@pytest.mark.parametrize(
    "handler",
    [nested, Handler().method, Handler(), partial(nested), lambda n, f: nested(n, f)],
    ids=["function", "method", "object", "partial", "lambda"],
)
def test_any_handler_is_known_by_what_it_is_called_with(handler: Callable[..., object]) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError) as caught:
            Guard().call("census", None, signal.raise_signal, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert is_interrupt(caught.value)


def test_what_the_program_kept_goes_when_an_interrupt_has_passed() -> None:
    class Batch:
        pass

    def interrupted() -> weakref.ref[Batch]:
        batch = Batch()
        try:
            gate.dispatch(guard.call, "census", None, signal.raise_signal, signal.SIGUSR1)
        except TimeoutError:
            return weakref.ref(batch)
        raise AssertionError("it did not pass")

    guard = Guard()
    gate = EventDispatcher(guard, Costs())
    gate.open()
    before = signal.signal(signal.SIGUSR1, nested)
    gc.disable()
    try:
        assert interrupted()() is None
    finally:
        gc.enable()
        signal.signal(signal.SIGUSR1, before)


def test_a_fault_of_ours_is_no_interrupt() -> None:
    def broken(frame: object) -> None:
        raise TimeoutError

    faults: list[str] = []
    guard = Guard(lambda part, message, disabled: faults.append(message))
    assert guard.call("census", 3, broken, None) == 3
    assert "TimeoutError" in faults[0]


STRUCK_WHILE_IT_CLOSES = """
import signal, sys

from leakscope.capture.session import Session


def too_late(number, frame):
    raise {raised}


signal.signal(signal.SIGALRM, too_late)
weights = [0.5] * 100
Session._reach = lambda *_: signal.raise_signal(signal.SIGALRM)
print("trained")
"""


@pytest.mark.parametrize("raised", ["RuntimeError('stalled')", "SystemExit(9)"])
def test_what_a_handler_raises_after_the_program_costs_the_recording_nothing(
    raised: str, tmp_path: Path
) -> None:
    ended = fault_runs.recorded(STRUCK_WHILE_IT_CLOSES.format(raised=raised), tmp_path)
    assert ended.code == 0
    assert ended.out == "trained\n"
    assert "could not be closed" not in ended.err
    end = open_run(tmp_path / "run").main.end
    assert end is not None
    assert end.status == "completed"
