"""Loops through autograd: found through what C++ refers to, named, and let go of."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from heap_programs import program_runner

from leakscope.heap import autograd_loops
from leakscope.heap.autograd_loops import LoopFinder
from leakscope.model.census import CensusScope, LoopStep, RootKind, StepKind

torch = pytest.importorskip("torch")

needs_memory = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="which hooks a node has is read from /proc/self/mem",
)


_openers: list[Callable[[], object]] = []


@pytest.fixture(autouse=True)
def no_loop_is_left() -> Iterator[None]:
    """Open the loops of a test: no collection frees them, and censuses of later tests meet them."""
    yield
    while _openers:
        _openers.pop()()
    gc.collect()


class Keeper:
    """What a program refers to from a hook."""

    def __init__(self) -> None:
        self.kept: Any = None
        _openers.append(self.let_go)

    def let_go(self) -> None:
        self.kept = None

    def note(self, gradient: Any) -> None:
        assert self.kept is not None


class Doubles(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


def hidden() -> Any:
    return torch.nn.Linear(4, 4)(torch.ones(2, 4)).relu()


def tensor_hook() -> tuple[Any, list[Any]]:
    first = hidden()
    out = torch.nn.Linear(4, 4)(first)

    def note(gradient: Any) -> Any:
        return gradient * out.detach().mean()

    first.register_hook(note)
    _openers.append(first._backward_hooks.clear)
    out.sum().backward()
    return first._backward_hooks, [note]


def bound_method() -> tuple[Any, list[Any]]:
    first, keeper = hidden(), Keeper()
    keeper.kept = first.exp().exp().exp().exp()
    first.register_hook(keeper.note)
    return first._backward_hooks, [keeper]


def node_hook(register: str) -> Callable[[], tuple[Any, list[Any]]]:
    def make() -> tuple[Any, list[Any]]:
        first, keeper = hidden(), Keeper()
        keeper.kept = [first.exp().sum()]

        def note(*_: Any) -> None:
            assert keeper.kept

        handle = getattr(first.grad_fn, register)(note)
        return handle.hooks_dict_ref(), [keeper]

    return make


def unpack_hook() -> tuple[Any, list[Any]]:
    box: dict[str, Any] = {}

    def unpack(number: int) -> Any:
        return box["result"]

    with torch.autograd.graph.saved_tensors_hooks(lambda _: 0, unpack):
        box["result"] = hidden().exp()
    _openers.append(box.clear)
    return unpack, [unpack]


def leaf_hook() -> tuple[Any, list[Any]]:
    leaf = torch.ones(3, requires_grad=True)
    out = leaf.exp().sum()

    def note(_: Any) -> None:
        assert out is not None

    leaf.register_hook(note)
    _openers.append(leaf._backward_hooks.clear)
    return leaf, [note]


def context() -> tuple[Any, list[Any]]:
    middle = Doubles.apply(torch.ones(2, requires_grad=True))
    keeper = Keeper()
    middle.grad_fn.kept = middle.exp().sum()
    middle.grad_fn.keeper = keeper
    _openers.append(vars(middle.grad_fn).clear)
    return middle.grad_fn, [keeper]


def own_gradient() -> tuple[Any, list[Any]]:
    leaf = torch.ones(3, requires_grad=True)
    leaf.grad = (leaf * 2).exp()
    _openers.append(lambda: setattr(leaf, "grad", None))
    keeper = leaf.keeper = Keeper()
    return leaf, [keeper]


def kept_output() -> tuple[Any, list[Any]]:
    """An object that keeps the tensor whose hook is a method of it, as old weight norm does."""
    keeper = Keeper()
    keeper.kept = hidden().exp()
    keeper.kept.register_hook(keeper.note)
    hooks = keeper.kept._backward_hooks
    _openers.append(hooks.clear)
    return hooks, [keeper]


def accumulating_node() -> tuple[Any, list[Any]]:
    leaf = torch.ones(3, requires_grad=True)
    node = leaf.expand_as(leaf).grad_fn.next_functions[0][0]
    keeper = Keeper()
    keeper.kept = node
    return node.register_hook(keeper.note).hooks_dict_ref(), [keeper]


def after_accumulation() -> tuple[Any, list[Any]]:
    layer, keeper = torch.nn.Linear(2, 2), Keeper()
    keeper.kept = layer
    layer.weight.register_post_accumulate_grad_hook(keeper.note)
    return layer.weight._post_accumulate_grad_hooks, [keeper]


class Wrapped:
    """Stands for what takes part in data-parallel training: the reducer refers to ``state``."""

    def __init__(self, state: Any) -> None:
        self.reducer = Reducer()
        self._comm_hooks = [(print, state)]


class Reducer:
    pass


def reduced(monkeypatch: pytest.MonkeyPatch) -> tuple[Wrapped, Keeper]:
    state = Keeper()
    state.kept = Wrapped(state)
    monkeypatch.setattr(autograd_loops, "_REDUCED", (__name__, "Wrapped"))
    return state.kept, state


def steps(target: object) -> list[tuple[str, str]]:
    return [(step.kind.value, step.name) for step in LoopFinder().find(target)]


def found(make: Callable[[], tuple[Any, list[Any]]]) -> list[tuple[str, str]]:
    target, _ = make()
    return steps(target)


class TestSteps:
    @needs_memory
    def test_a_hook_that_refers_to_what_came_of_its_tensor(self) -> None:
        assert found(tensor_hook) == [
            ("hook", "tensor_hook.note"),
            ("tensor", "out"),
            ("node", "AddmmBackward0"),
            ("node", "ReluBackward0"),
        ]

    @needs_memory
    def test_a_hook_is_reported_by_where_its_function_begins(self) -> None:
        hook = LoopFinder().find(tensor_hook()[0])[0]
        assert Path(hook.file).name == Path(__file__).name
        assert hook.line == tensor_hook.__code__.co_firstlineno + 4

    @needs_memory
    def test_a_bound_method_and_a_long_way_through_the_graph(self) -> None:
        assert found(bound_method) == [
            ("hook", "Keeper.note"),
            ("object", "Keeper"),
            ("tensor", "Keeper.kept"),
            ("node", "ExpBackward0"),
            ("gap", "…"),
            ("node", "ReluBackward0"),
        ]

    @needs_memory
    @pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
    def test_hooks_of_nodes(self, register: str) -> None:
        names = found(node_hook(register))
        assert names[0] == ("hook", "node_hook.make.note")
        assert names[-1] == ("node", "ReluBackward0")

    def test_an_unpack_hook_that_refers_to_the_result(self) -> None:
        assert found(unpack_hook) == [
            ("unpack_hook", "unpack_hook.unpack"),
            ("tensor", "box['result']"),
            ("node", "ExpBackward0"),
        ]

    def test_a_context_that_keeps_what_came_of_its_output(self) -> None:
        names = found(context)
        assert names[:2] == [("context", "DoublesBackward"), ("tensor", "DoublesBackward.kept")]

    def test_the_hook_of_a_leaf(self) -> None:
        assert found(leaf_hook)[:2] == [("hook", "leaf_hook.note"), ("tensor", "out")]

    def test_a_gradient_with_a_graph(self) -> None:
        assert found(own_gradient)[:2] == [("tensor", "Tensor"), ("tensor", "Tensor.grad")]

    @needs_memory
    def test_a_hook_whose_tensor_its_own_object_keeps(self) -> None:
        assert found(kept_output) == [
            ("hook", "Keeper.note"),
            ("object", "Keeper"),
            ("tensor", "Keeper.kept"),
            ("node", "ExpBackward0"),
        ]

    @needs_memory
    def test_a_hook_of_the_node_that_accumulates(self) -> None:
        assert found(accumulating_node) == [
            ("hook", "Keeper.note"),
            ("object", "Keeper"),
            ("node", "AccumulateGrad"),
        ]

    @pytest.mark.parametrize("of", ["hooks", "layer"])
    def test_a_hook_that_runs_after_accumulation(self, of: str) -> None:
        hooks, (keeper,) = after_accumulation()
        assert steps({"hooks": hooks, "layer": keeper.kept}[of]) == [
            ("hook", "Keeper.note"),
            ("object", "Keeper"),
            ("object", "Linear"),
            ("tensor", "Linear.weight"),
        ]

    def test_a_loop_that_a_circle_of_pythons_alone_leads_to_is_reported_without_that(self) -> None:
        keeper, neighbour = Keeper(), Keeper()
        keeper.kept = Doubles.apply(torch.ones(2, requires_grad=True))
        keeper.kept.grad_fn.keeper = keeper
        keeper.neighbour, neighbour.kept = neighbour, keeper
        names = [name for _, name in steps(neighbour)]
        assert sorted(names) == ["DoublesBackward", "Keeper", "Keeper.kept"]

    def test_the_state_of_a_communication_hook(self, monkeypatch: pytest.MonkeyPatch) -> None:
        wrapped, state = reduced(monkeypatch)
        names = ["Keeper", "Wrapped", "Reducer"]
        assert [name for _, name in steps(state)] == names
        assert sorted(name for _, name in steps(wrapped)) == sorted(names)


class TestNoLoop:
    def test_a_hook_that_refers_to_another_graph(self) -> None:
        first, other = hidden(), hidden().exp()

        def note(_: Any) -> None:
            assert other is not None

        first.register_hook(note)
        assert steps(first._backward_hooks) == []

    def test_a_hook_that_was_removed(self) -> None:
        first = hidden()
        out = first.exp()
        handle = first.register_hook(lambda _: out)
        hooks = first._backward_hooks
        handle.remove()
        assert steps(hooks) == []

    def test_a_hook_that_refers_to_values_without_a_graph(self) -> None:
        first = hidden()
        values = first.exp().detach()
        first.register_hook(lambda _: values.mean())
        assert steps(first._backward_hooks) == []

    def test_a_circle_without_autograd_is_the_collectors(self) -> None:
        keeper = Keeper()
        keeper.kept = keeper.note
        assert steps(keeper) == []

    def test_a_leafs_own_hooks_are_the_collectors(self) -> None:
        layer, keeper = torch.nn.Linear(2, 2), Keeper()
        keeper.kept = layer
        layer.weight.register_hook(keeper.note)
        assert steps(layer.weight._backward_hooks) == []
        assert steps(layer) == []

    def test_hooks_of_a_module_are_the_collectors(self) -> None:
        layer, keeper = torch.nn.Linear(2, 2), Keeper()
        keeper.kept = layer
        layer.register_forward_hook(lambda *_: keeper.note(None))
        assert steps(layer) == []

    def test_what_is_no_part_of_the_circle_that_it_leads_to(self) -> None:
        hooks, kept = tensor_hook()
        assert steps([hooks, kept]) == []

    def test_a_search_ends_where_it_has_looked_at_enough(self) -> None:
        hooks, _ = tensor_hook()
        assert LoopFinder(most=3).find(hooks) == []


@pytest.mark.parametrize(
    "make",
    [
        tensor_hook,
        bound_method,
        node_hook("register_hook"),
        unpack_hook,
        leaf_hook,
        context,
        kept_output,
        accumulating_node,
        after_accumulation,
    ],
)
def test_a_search_keeps_nothing_alive_and_leaves_counts_as_they_were(
    make: Callable[[], tuple[Any, list[Any]]],
) -> None:
    target, kept = make()
    LoopFinder().find(target)  # asks for each node: torch makes its Python object
    before = sys.getrefcount(target), sys.getrefcount(kept[0])
    LoopFinder().find(target)
    assert (sys.getrefcount(target), sys.getrefcount(kept[0])) == before


@needs_memory
def test_a_loop_that_is_opened_after_a_search_is_freed() -> None:
    hooks, kept = tensor_hook()
    ended = weakref.ref(kept[0])
    kept.clear()
    assert LoopFinder().find(hooks)
    hooks.clear()
    gc.collect()
    assert ended() is None


LEAKING = """
import weakref
import torch

hooks = []

def watch(first, out):
    def note(gradient):
        return gradient * out.detach().mean()
    first.register_hook(note)
    hooks.append(weakref.ref(first._backward_hooks))

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
head = torch.nn.Linear(8, 20_000)
for step in range(20):
    first = model(torch.ones(4, 8))
    out = head(first)
    watch(first, out)
    out.sum().backward()
    if step in (3, 10, 19):
        del first, out
        look()
for hook in hooks:
    hook().clear()
"""


@needs_memory
def test_a_census_tells_the_loop_of_what_only_native_code_holds(tmp_path: Path) -> None:
    taken = program_runner(tmp_path)(LEAKING, scope=CensusScope.FULL)
    row = taken.at("<held by native code>·collections.OrderedDict")
    assert row.root is RootKind.NATIVE
    assert [step.name for step in row.loop] == [
        "watch.note", "out", "AddmmBackward0", "ReluBackward0"
    ]  # fmt: skip
    assert row.loop[0] == LoopStep(
        kind=StepKind.HOOK, name="watch.note", file=str(tmp_path / "train.py"), line=8
    )


class Packed:
    """What the hook that packs puts in a tensor's place, and only C++ refers to."""


def packed_below() -> tuple[Any, list[Any]]:
    box: dict[str, Any] = {}

    def unpack(packed: Packed) -> Any:
        return box["result"]

    with torch.autograd.graph.saved_tensors_hooks(lambda _: Packed(), unpack):
        box["result"] = hidden().exp()
    _openers.append(box.clear)
    return unpack, [unpack]


@needs_memory
def test_what_hooks_have_packed_hangs_on_the_loop_of_the_hook_that_unpacks() -> None:
    unpack, _ = packed_below()
    packed = next(obj for obj in gc.get_objects() if type(obj) is Packed)
    kind = f"{__name__}.Packed"
    assert LoopFinder().find(packed) == []
    assert LoopFinder().find_below(unpack, kind)[0].kind is StepKind.UNPACK_HOOK
    assert LoopFinder().find_below(unpack, "collections.OrderedDict") == []
    assert LoopFinder().find_below(packed, kind) == []
