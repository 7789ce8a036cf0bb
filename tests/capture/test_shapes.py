"""Shapes of tensors in running functions are counted; nothing is kept of them, nothing is run."""

from __future__ import annotations

import gc
import weakref
from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from leakscope.capture.gauges import MOST_ITEMS, MOST_SHAPES, ShapesReader  # noqa: E402


class Encoding(UserDict[str, Any]):
    """As tokenizers return their batches."""


def new_shapes(holds: Callable[[], object]) -> int:
    """Return how many more shapes are seen while a function holds what is made."""
    reader = ShapesReader()
    before = reader.gauges()["shapes"]

    def step() -> int:
        held = holds()
        seen = reader.gauges()["shapes"]
        assert held is not None
        return seen - before

    return step()


@pytest.mark.parametrize(
    ("holds", "found"),
    [
        (lambda: torch.zeros(2, 301), 1),
        (lambda: [torch.zeros(2, 302), torch.zeros(2, 303)], 2),
        (lambda: (torch.zeros(2, 304), {"mask": torch.zeros(2, 304)}), 1),
        (lambda: Encoding(ids=torch.zeros(2, 305)), 1),
        (lambda: torch.zeros(306), 0),
        (lambda: torch.nn.Parameter(torch.zeros(2, 307)), 0),
        (lambda: [torch.zeros(2, 400 + n) for n in range(MOST_ITEMS + 1)], 0),
        (lambda: [[[torch.zeros(2, 308)]]], 0),
    ],
    ids=["tensor", "list", "alike", "encoding", "vector", "parameter", "history", "deep"],
)
def test_shapes_of_what_a_function_holds_are_counted(
    holds: Callable[[], object], found: int
) -> None:
    assert new_shapes(holds) == found


def test_a_shape_is_counted_once() -> None:
    reader = ShapesReader()
    counts = []
    for length in (501, 502, 501, 502, 503):
        batch = torch.zeros(2, length)
        counts.append(reader.gauges()["shapes"])
        assert batch.shape[1] == length
    assert [count - counts[0] for count in counts] == [0, 1, 1, 1, 2]


def test_callers_are_looked_at_too() -> None:
    reader = ShapesReader()

    def outer() -> int:
        batch = torch.zeros(2, 601)
        seen = inner()
        assert batch.shape[1] == 601
        return seen

    def inner() -> int:
        return reader.gauges()["shapes"]

    before = inner()
    assert outer() == before + 1


def test_no_more_are_distinguished_than_any_cache_keeps() -> None:
    reader = ShapesReader()
    for length in range(MOST_SHAPES + 10):
        batch = torch.empty(2, 700 + length)
        seen = reader.gauges()["shapes"]
        assert batch.shape[1] == 700 + length
    assert seen == MOST_SHAPES


def test_nothing_is_kept_alive() -> None:
    reader = ShapesReader()

    def step() -> weakref.ref[Any]:
        batch = [torch.zeros(2, 801)]
        reader.gauges()
        return weakref.ref(batch[0])

    gc.collect()
    gc.disable()
    try:
        assert step()() is None
    finally:
        gc.enable()


def test_a_container_of_the_programs_own_is_left_alone() -> None:
    class Loud(dict[str, Any]):
        def values(self) -> Any:
            raise AssertionError("the program's code ran")

    assert new_shapes(lambda: Loud(x=torch.zeros(2, 901))) == 0


def test_a_nested_tensor_has_no_shape_and_costs_nothing_else() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)])
    assert new_shapes(lambda: [nested, torch.zeros(2, 902)]) == 1


def test_no_mode_of_the_programs_hears_of_it() -> None:
    heard = []

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            heard.append(function)
            return function(*args, **(kwargs or {}))

    batch = torch.zeros(2, 903)
    reader = ShapesReader()
    with Mode():
        seen = reader.gauges()["shapes"]
    assert heard == []
    assert seen > 0
    assert len(batch) == 2
