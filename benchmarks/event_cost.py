"""What counting events and timing collections costs a step of a millisecond.

    python benchmarks/event_cost.py [--rounds 40] [--calls 20000]

An empty function is called as it is and as it is wrapped to count an event; both take turns in one
process, and printed is what the fastest rounds of each differ by, which other work on the machine
disturbs least. A step is taken to get a batch, to write two log records and two scalars, and every
tenth to save a file, to make an optimizer and a scheduler and to begin a pass over a loader. Added
is what asking for the counts takes, as if every tenth step were recorded: of steps of a millisecond
the budget allows for fewer.

An exception is raised and caught in a function that is listened to, and in one that isn't, where
the interpreter can be listened to (CPython 3.12); a step is taken to catch one in ten, and to call
such functions twenty times without.

Collections are made as programs make them, by lists that are kept for a moment, with and without
being timed in turn: how many a step has depends on the objects that it keeps. Full ones are rarer,
and cost the same. Calls of gc.collect() are counted by line, with memory read before and after.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import torch
from machine import machine

from leakscope.capture.events import PASSAGES, EventCounts
from leakscope.capture.sites import INSTALLED, NOT_USERS
from leakscope.model.boundary import Event
from leakscope.probes.interpreter import CollectionTimes

STEP_SECONDS = 1e-3
PER_STEP = {
    Event.LOG: 2.0,
    Event.TRACKER_CALL: 2.0,
    Event.SAVE: 0.1,
    Event.OPTIMIZER: 0.1,
    Event.SCHEDULER: 0.1,
    Event.LOADER_ITERATOR: 0.1,
    Event.NEW_SHAPE: 1.0,
}
CAUGHT_PER_STEP = 0.1
UNTAKEN_PER_STEP = 20.0
SHORT_ROUNDS = 50
"""Rounds of collections are short, and so many times as many: few are not disturbed otherwise."""
RECORDED_SHARE = 0.1
MOST = 0.002
"""Of a step: the bound that the figures are held against."""


def nothing(*args: Any) -> object:
    """Take what a log record is made of, and return the batch of a loader."""
    return BATCH


BATCH = [torch.ones(16, 64), torch.ones(16)]
ARGUMENTS = (None, "name", 20, "file", 1, "text", (), None)


def seconds(function: Callable[..., object], calls: int, arguments: tuple[object, ...]) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        function(*arguments)
    return (time.perf_counter() - began) / calls


def per_collection(rounds: int) -> float:
    """Return the seconds that a young collection takes with the lists that bring it about."""
    kept: list[list[object]] = []
    before = gc.get_stats()[0]["collections"]
    began = time.perf_counter()
    for _ in range(rounds):
        kept = [[] for _ in range(3 * gc.get_threshold()[0])]
    took = time.perf_counter() - began
    kept.clear()
    return took / (gc.get_stats()[0]["collections"] - before)


def per_call(calls: int) -> float:
    """Return the seconds that the least call of the collector takes."""
    began = time.perf_counter()
    for _ in range(calls):
        gc.collect(0)
    return (time.perf_counter() - began) / calls


def timing(rounds: int, calls: int) -> tuple[float, float, float]:
    """Return what a collection takes with the lists that it looks at, and by how much it lasts
    longer where it is timed; then by how much one that is requested does.
    """
    times, thresholds = CollectionTimes(), gc.get_threshold()
    gc.set_threshold(thresholds[0], 1 << 30)  # older ones cost what is alive, which varies
    found: dict[tuple[bool, bool], list[float]] = {}
    for _ in range(SHORT_ROUNDS * rounds):
        for is_timed in (False, True):
            if is_timed:
                times.start(NOT_USERS, INSTALLED)
            found.setdefault((is_timed, False), []).append(per_collection(calls // 1000))
            found.setdefault((is_timed, True), []).append(per_call(calls // 1000))
            times.stop()
    gc.set_threshold(*thresholds)
    least = {key: min(values) for key, values in found.items()}
    plain = least[False, False]
    return plain, least[True, False] - plain, least[True, True] - least[False, True]


def catches(does_raise: bool) -> object:
    try:
        return 1 // (not does_raise)
    except ZeroDivisionError:
        return None


def catching(rounds: int, calls: int) -> dict[bool, float]:
    """Return by how much a call lasts longer where exceptions are counted, by whether one is
    raised; empty where none can be.
    """
    if not hasattr(sys, "monitoring"):
        return {}
    followed = types.FunctionType(catches.__code__.replace(co_name="followed"), globals())
    caught = EventCounts().caught
    caught.install()
    caught._listen(followed.__code__)
    found: dict[tuple[bool, bool], list[float]] = {}
    for _ in range(rounds):
        for does_raise in (False, True):
            for is_followed in (False, True):
                function = followed if is_followed else catches
                took = seconds(function, calls // 10, (does_raise,))
                found.setdefault((is_followed, does_raise), []).append(took)
    caught.uninstall()
    least = {key: min(values) for key, values in found.items()}
    return {raises: least[True, raises] - least[False, raises] for raises in (False, True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    rounds, calls = (3, 2000) if given.quick else (given.rounds, given.calls)
    print(machine())
    counts = EventCounts()
    counts.install()
    counts.uninstall()
    passages = {passage.event: passage for passage in reversed(PASSAGES)}
    counting = {event: counts._wrap(passages[event], nothing) for event in PER_STEP}
    plain, asking = [], []
    counted: dict[Event, list[float]] = {event: [] for event in PER_STEP}
    for _ in range(rounds):
        plain.append(seconds(nothing, calls, ARGUMENTS))
        for event, function in counting.items():
            counted[event].append(seconds(function, calls, ARGUMENTS))
        asking.append(seconds(counts.changed, calls // 10, ()))
    print(f"  {'an empty call':<18} {1e9 * min(plain):6.0f} ns")
    share = RECORDED_SHARE * min(asking) / STEP_SECONDS
    for event, values in counted.items():
        more = min(values) - min(plain)
        share += PER_STEP[event] * more / STEP_SECONDS
        print(f"  {event.value:<18} {1e9 * more:6.0f} ns more")
    if more_to_catch := catching(rounds, calls):
        share += CAUGHT_PER_STEP * more_to_catch[True] / STEP_SECONDS
        share += UNTAKEN_PER_STEP * more_to_catch[False] / STEP_SECONDS
        print(f"  {'caught':<18} {1e9 * more_to_catch[True]:6.0f} ns more")
        print(f"  {'except, not taken':<18} {1e9 * more_to_catch[False]:6.0f} ns more")
    else:
        print(f"  {'caught':<18} not counted before CPython 3.12")
    print(f"  {'asking':<18} {1e9 * min(asking):6.0f} ns")
    kept = "kept" if share <= MOST else "NOT KEPT"
    print(f"  of a step of 1 ms {share:.3%}, at most {MOST:.1%}: {kept}")
    young, by_itself, requested = timing(rounds, calls)
    part = f"{by_itself / young:.1%} of it and of making the lists"
    print(f"  {'collection':<18} {1e9 * by_itself:6.0f} ns more, {part}")
    print(f"  {'gc.collect(0)':<18} {1e9 * requested:6.0f} ns more")


if __name__ == "__main__":
    main()
