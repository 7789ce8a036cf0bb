"""When a graph's nodes were made tells what accumulates from what is recreated."""

from __future__ import annotations

import gc
import weakref

import pytest

torch = pytest.importorskip("torch")

from leakscope.heap import row_details  # noqa: E402
from leakscope.heap.row_details import made  # noqa: E402


def loss(weight: torch.Tensor) -> torch.Tensor:
    return (weight * torch.rand(8)).sum()


def test_what_is_recreated_is_younger_than_all_that_was_before() -> None:
    weight = torch.rand(8, requires_grad=True)
    first, second = made(loss(weight)), made(loss(weight))
    assert first[0] <= first[1] < second[0] <= second[1]


def test_what_accumulates_stays_as_old_as_its_first_part() -> None:
    weight = torch.rand(8, requires_grad=True)
    total = loss(weight)
    first = made(total)
    for _ in range(5):
        total = total + loss(weight)
    assert made(total)[0] == first[0]
    assert made(total)[1] > first[1]


def test_nodes_of_functions_that_users_write_count_too() -> None:
    class Doubled(torch.autograd.Function):
        _sequence_nr = None

        @staticmethod
        def forward(ctx, value):
            return value * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    before = loss(torch.rand(8, requires_grad=True))
    after = Doubled.apply(torch.rand(8, requires_grad=True))
    assert made(after)[0] > made(before)[1]


def test_a_graph_that_is_too_large_and_a_tensor_without_one_tell_nothing(monkeypatch) -> None:
    monkeypatch.setattr(row_details, "MOST_NODES", 3)
    value = torch.rand(8, requires_grad=True)
    for _ in range(5):
        value = value * 2
    assert made(value) == []
    assert made(torch.rand(3)) == []
    assert made("no tensor") == []


def test_the_overrides_of_a_subclass_are_not_called_and_nothing_is_kept() -> None:
    class Asked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *arguments, **more):
            raise AssertionError("asked")

    with torch._C.DisableTorchFunctionSubclass():
        weight = torch.rand(8, requires_grad=True)
        value = loss(weight).as_subclass(Asked)
    assert made(value)
    gone = weakref.ref(weight)
    with torch._C.DisableTorchFunctionSubclass():
        del value, weight
    gc.collect()
    assert gone() is None
