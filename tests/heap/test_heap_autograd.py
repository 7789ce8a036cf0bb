"""What autograd keeps for a program: contexts of custom functions, hooks and their closures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from payloads import ENGINES, KB, payload, retained, seen

from leakscope.heap import graph

torch = pytest.importorskip("torch")
BIG = 40 * KB


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Keeps(torch.autograd.Function):  # type: ignore[misc]
    """Keeps a tensor as torch wants it, one as an attribute, and what else it is given."""

    @staticmethod
    def forward(ctx: Any, x: Any, note: Any) -> Any:
        ctx.save_for_backward(torch.zeros(KB))
        ctx.left = torch.zeros(KB)
        ctx.note = note
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2, None


class SetsUp(torch.autograd.Function):  # type: ignore[misc]
    """The same in the newer form."""

    @staticmethod
    def forward(x: Any, note: Any) -> Any:
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(torch.zeros(KB))
        ctx.left = torch.zeros(KB)
        ctx.note = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2, None


@pytest.mark.parametrize("function", [Keeps, SetsUp])
class TestContexts:
    def test_what_a_context_keeps_is_retained_by_the_output(
        self, engine: str, function: Any
    ) -> None:
        x = torch.ones(3, requires_grad=True)
        output = function.apply(x, bytearray(BIG))
        result = seen(engine, output, x)
        assert retained(result, output) > BIG + 2 * 4 * KB
        assert result.graph_bytes == {"host": 2 * 4 * KB}

    def test_after_backward_attributes_stay_and_saved_tensors_go(
        self, engine: str, function: Any
    ) -> None:
        output = function.apply(torch.ones(3, requires_grad=True), bytearray(BIG))
        output.sum().backward()
        assert seen(engine, output).graph_bytes == {"host": 4 * KB + 2 * 12}  # leaf and gradient

    def test_a_detached_output_keeps_no_context(self, engine: str, function: Any) -> None:
        output = function.apply(torch.ones(3, requires_grad=True), bytearray(BIG)).detach()
        assert retained(seen(engine, output), output) < KB

    def test_a_history_of_outputs_keeps_every_context(self, engine: str, function: Any) -> None:
        x = torch.ones(3, requires_grad=True)
        history = [function.apply(x, bytearray(BIG)) for _ in range(10)]
        assert retained(seen(engine, history, x), history) > 10 * (BIG + 2 * 4 * KB)


def _leaf() -> Any:
    return torch.ones(3, requires_grad=True)


def _hook(size: int) -> Callable[..., None]:
    big = bytearray(size)

    def hook(*_: Any) -> None:
        assert big

    return hook


def _with_hook(register: str, tensor: Any) -> Any:
    getattr(tensor, register)(_hook(BIG))
    return tensor


def _module(register: str) -> Any:
    module = torch.nn.Linear(3, 3)
    getattr(module, register)(_hook(BIG))
    return module


HOOKED: dict[str, Callable[[], Any]] = {
    "leaf": lambda: _with_hook("register_hook", _leaf()),
    "result": lambda: _with_hook("register_hook", _leaf() * 2),
    "accumulated gradient": lambda: _with_hook("register_post_accumulate_grad_hook", _leaf()),
    "module forward": lambda: _module("register_forward_hook"),
    "module before forward": lambda: _module("register_forward_pre_hook"),
    "module backward": lambda: _module("register_full_backward_hook"),
    "module before backward": lambda: _module("register_full_backward_pre_hook"),
    "state dict": lambda: _module("_register_state_dict_hook"),
}


class TestHooks:
    @pytest.mark.parametrize("name", HOOKED)
    def test_what_a_hook_closes_over_is_retained(self, engine: str, name: str) -> None:
        value = HOOKED[name]()
        assert BIG < retained(seen(engine, value), value) < BIG + 10 * KB

    def test_a_removed_hook_keeps_nothing(self, engine: str) -> None:
        leaf = _leaf()
        leaf.register_hook(_hook(BIG)).remove()
        assert retained(seen(engine, leaf), leaf) < 2 * KB

    @pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
    def test_hooks_of_a_graphs_node_are_known_to_torch_alone(
        self, engine: str, register: str
    ) -> None:
        """Only native code tells of them, so a full walk has what they close over under that."""
        result = _leaf() * 2
        getattr(result.grad_fn, register)(_hook(BIG))
        assert payload(engine, result)["host"] < KB
        assert retained(seen(engine, result), result) < 2 * KB
        native = seen("native", result, full=True).native_bytes if "native" in ENGINES else BIG
        assert native is not None
        assert native >= BIG


class TestGradients:
    def test_a_gradient_is_its_leafs(self, engine: str) -> None:
        leaf = torch.ones(10 * KB, requires_grad=True)
        (leaf * 2).sum().backward()
        assert 80 * KB < retained(seen(engine, leaf), leaf) < 81 * KB

    def test_a_gradient_that_was_kept_elsewhere_is_shared(self, engine: str) -> None:
        leaf = torch.ones(10 * KB, requires_grad=True)
        (leaf * 2).sum().backward()
        kept = [leaf.grad]
        result = seen(engine, leaf, kept)
        assert 40 * KB < retained(result, leaf) < 41 * KB
        assert retained(result, kept) < KB

    def test_a_retained_gradient_of_a_result(self, engine: str) -> None:
        leaf = _leaf()
        result = leaf * 2
        result.retain_grad()
        result.sum().backward()
        with_gradient = payload(engine, result)["host"]
        result.grad = None
        assert with_gradient - payload(engine, result)["host"] == 12


@pytest.mark.slow
@pytest.mark.parametrize("made_by_looking", [False, True])
def test_a_parameter_in_a_circle_through_its_gradient_keeps_its_own(
    engine: str, made_by_looking: bool
) -> None:
    """Looking makes objects of nodes and storages that torch then keeps: they hold nothing."""
    weight = torch.nn.Parameter(torch.ones(100, 100))
    weight.square().sum().backward(create_graph=True)
    name = id(weight)
    del weight
    if made_by_looking:
        seen(engine, full=True)
    nodes = seen(engine, full=True).nodes
    holding = zip(nodes.objects, nodes.root, nodes.host_bytes, strict=True)
    retained_by_it = next(
        size for o, root, size in holding if id(o) == name and root == graph.NATIVE
    )
    assert 80_000 <= retained_by_it < 81_000


VIEWS_OF_WHAT_IS_WRITTEN_TO = """
import ctypes, gc, sys
import torch
from leakscope.heap.census import CensusTaker
from leakscope.model.census import CensusScope

def main():
    gc.disable()
    # Lines are looked up, for which samples of what is new are kept.
    taker = CensusTaker(project_root=".", blocks=lambda *_: {})
    taker.take(CensusScope.FOCUSED)
    bases = [torch.ones(4, requires_grad=True).clone() for _ in range(500)]
    circle = [[(base, base[:2]) for base in bases]]
    circle.append(circle)
    address = id(circle)
    del bases, circle
    for _ in range(4):
        with torch.no_grad():
            for base, view in ctypes.cast(address, ctypes.py_object).value[0]:
                base.mul_(2)
        if sys.argv[1] == "unreached":
            del base, view
        print(taker.take(CensusScope.FOCUSED).garbage_bytes)

main()
"""


@pytest.mark.parametrize("way", ["named", "unreached"])
def test_views_whose_memory_is_written_to_between_censuses_are_walked(way: str) -> None:
    """torch drops the node of such a view, and with it its Python object, as soon as it is asked
    for the view's node; the walk may have met that object before.
    """
    done = subprocess.run(
        [sys.executable, "-c", VIEWS_OF_WHAT_IS_WRITTEN_TO, way], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == 1, done.stdout
