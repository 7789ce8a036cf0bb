"""How deep in its loops a function gives a variable its value, and which name that makes better."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakscope.heap.bytecode import loop_depths


def depths_of(function: Callable[..., Any]) -> dict[str, int]:
    return loop_depths(function.__code__)


def plain(argument: int, *more: int, key: int = 0, **others: int) -> tuple[Any, ...]:
    before = argument
    for row in range(3):
        argument, more, key, others = row, (), 0, {}
        inside = row
        for column in range(3):
            left, deepest = row, column
        behind = deepest + left
    return before, inside, behind, argument, more, key, others


def test_variables_are_as_deep_as_the_loops_around_them() -> None:
    outer = dict.fromkeys(("row", "inside", "behind"), 1)
    assert depths_of(plain) == outer | dict.fromkeys(("column", "left", "deepest"), 2)


def both() -> int | None:
    last = None
    for row in range(3):
        last = row
    return last


def test_what_is_given_a_value_outside_too_lives_there() -> None:
    assert depths_of(both) == {"row": 1}


def endless(running: bool) -> None:
    epoch = 0
    while running and epoch < 3:
        epoch += 1
        entry = epoch
        if entry == 2:
            continue
        while True:
            block = entry
            if block:
                break
    after = epoch
    del after


def test_loops_without_an_iterator_count() -> None:
    found = depths_of(endless)
    assert found.keys() == {"entry", "block"}
    assert 1 <= found["entry"] < found["block"]


def handled() -> None:
    for row in range(3):
        try:
            tried = row
        except ValueError as error:
            kept = error
    history: list[int] = []
    with suppress(ValueError) as outcome:
        text = str(outcome)
    del history, text, kept, tried


def test_a_handler_within_a_loop_makes_nothing_behind_it_deeper() -> None:
    found = depths_of(handled)
    assert (found["row"], found["tried"]) == (1, 1)
    assert not found.keys() & {"history", "outcome", "text"}


def enclosed() -> Callable[[], int]:
    for number in range(3):
        seen = number

    def inner() -> int:
        return seen

    return inner


def test_variables_that_closures_share_count() -> None:
    assert depths_of(enclosed) == {"number": 1, "seen": 1}


def suspended() -> Iterator[int]:
    total = 0
    for number in itertools.count():
        part = yield number
        total += number
        del part


async def awaited(source: Any) -> None:
    async for number in source:
        part = await source
        del number, part


def test_generators_and_coroutines_have_loops() -> None:
    assert depths_of(suspended) == {"number": 1, "part": 1}
    assert depths_of(awaited) == {"number": 1, "part": 1}


def test_the_names_of_a_module_count() -> None:
    code = compile("journal = {}\nfor task in 'ab':\n    entry = task\n", "train.py", "exec")
    assert loop_depths(code) == {"task": 1, "entry": 1}


@given(st.lists(st.sampled_from(["for", "while"]), max_size=5))
def test_each_loop_is_one_deeper(kinds: list[str]) -> None:
    heads = {"for": "for i{n} in items:", "while": "while items:"}
    lines = ["def f(items):", " v0 = 0"]
    for n, kind in enumerate(kinds, 1):
        lines += [" " * n + heads[kind].format(n=n), " " * (n + 1) + f"v{n} = 0"]
    code = compile("\n".join(lines), "f.py", "exec")
    (function,) = (item for item in code.co_consts if isinstance(item, CodeType))
    found = loop_depths(function)
    assert {name: found[name] for name in found if name[0] == "v"} == {
        f"v{n}": n for n in range(1, len(kinds) + 1)
    }


def test_the_standard_library_is_read_without_a_fault() -> None:
    import argparse
    import ast
    import inspect
    import typing

    functions = [
        value
        for module in (argparse, ast, inspect, typing)
        for value in vars(module).values()
        if inspect.isfunction(value)
    ]
    assert len(functions) > 100
    for function in functions:
        found = loop_depths(function.__code__)
        assert all(depth > 0 for depth in found.values())


@pytest.mark.parametrize("function", [both, endless])
def test_what_was_read_is_kept_for_the_next_time(function: Callable[..., Any]) -> None:
    assert depths_of(function) is depths_of(function)
