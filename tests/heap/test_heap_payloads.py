"""Memory that the collector can't see: storages, gradients, autograd graphs, arrays, images."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from leakscope.heap import graph
from leakscope.heap.graph import (
    BY_GRAPH,
    GARBAGE,
    GRADIENT,
    KEEPS_GRAPH,
    PARAMETER,
    WalkRequest,
    WalkResult,
    walk,
)

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
KB = 1000
ENGINES = ["reference", *(["native"] if graph.engine_name() == "native" else [])]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def seen(engine: str, *roots: object, **options: Any) -> WalkResult:
    return walk(WalkRequest(roots=list(roots), **{"cutoff_bytes": 2000, **options}), engine=engine)


def host_bytes(result: WalkResult, value: object) -> int:
    nodes = result.nodes
    found = zip(nodes.objects, nodes.host_bytes, strict=True)
    return next(size for o, size in found if o is value)


def test_a_storage_is_counted_once_for_all_its_views(engine: str) -> None:
    whole = torch.zeros(100 * KB)
    views = [whole[i:].detach() for i in range(10)]
    result = seen(engine, views, whole)
    assert result.payload_bytes == {"host": 400 * KB}
    assert len(set(result.tensors.storage)) == 1
    assert list(result.tensors.nbytes) == [400 * KB] * 11


def test_a_storage_tells_where_it_lies(engine: str) -> None:
    tensors = [torch.zeros(10 * KB) for _ in range(400)]
    views = [tensor[7:] for tensor in tensors]
    expected = {t.untyped_storage().data_ptr() for t in tensors}
    result = seen(engine, tensors, views)
    assert len(result.tensors.address) == 800
    assert set(result.tensors.address) == expected


def test_what_has_no_storage_lies_nowhere(engine: str) -> None:
    result = seen(engine, [torch.zeros(10 * KB, device="meta")])
    assert list(result.tensors.address) == [0]


def test_memory_that_is_copied_on_write_stays_shared_though_its_place_is_reported(
    engine: str,
) -> None:
    whole = torch.zeros(10 * KB)
    lazy = torch._lazy_clone(whole)
    seen(engine, [whole, lazy])
    assert torch._C._is_cow_tensor(lazy)


def test_a_small_view_keeps_the_whole_storage(engine: str) -> None:
    history = [torch.zeros(10 * KB)[:3] for _ in range(5)]
    assert host_bytes(seen(engine, history), history) > 5 * 40 * KB


def test_a_storage_held_by_two_names_is_retained_by_neither(engine: str) -> None:
    first = [torch.zeros(10 * KB)]
    second = [first[0][5:]]
    result = seen(engine, first, second, cutoff_bytes=0)
    assert host_bytes(result, first) < KB
    assert host_bytes(result, second) < KB
    assert result.payload_bytes == {"host": 40 * KB}


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.slow
@pytest.mark.parametrize("requested", [True, False])
def test_tensors_in_garbage_hold_their_storage_however_often_it_was_requested(
    engine: str, requested: bool
) -> None:
    """torch keeps the Python object of a storage that was once requested: nobody else holds it."""
    gc.collect()
    gc.disable()
    try:
        ring = Ring()
        whole = torch.zeros(1_000_000)
        ring.kept = [whole, whole[3:], torch.zeros(500_000).untyped_storage()]
        if requested:
            whole.untyped_storage()
        key = id(ring)
        del ring, whole
        result = seen(engine, [], full=True)
        assert result.garbage_bytes is not None
        assert 6_000_000 < result.garbage_bytes < 6_100_000
        at = next(i for i, o in enumerate(result.nodes.objects) if id(o) == key)
        assert result.nodes.root[at] == GARBAGE
        assert 6_000_000 < result.nodes.host_bytes[at] < 6_100_000
    finally:
        result = None
        gc.enable()
        gc.collect()


@pytest.mark.slow
def test_a_storage_that_native_code_holds_next_to_garbage_is_no_garbage(engine: str) -> None:
    gc.collect()
    gc.disable()
    try:
        ring = Ring()
        ring.storage = torch.zeros(1_000_000).untyped_storage()
        kept = iter([ring.storage])  # known to this running frame alone, which isn't a root here
        del ring
        result = seen(engine, [], full=True)
        assert result.garbage_bytes is not None
        assert result.garbage_bytes < 100_000
        del kept
    finally:
        result = None
        gc.enable()
        gc.collect()


def test_meta_tensors_weigh_nothing(engine: str) -> None:
    result = seen(engine, [torch.zeros(10**9, device="meta")])
    assert result.payload_bytes == {"host": 0}
    assert list(result.tensors.storage) == [-1]


def test_fake_tensors_weigh_nothing(engine: str) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(10**6)
    assert seen(engine, [fake]).payload_bytes == {"host": 0}


def test_a_wrapper_weighs_what_it_wraps(engine: str) -> None:
    class Wrapper(torch.Tensor):
        inner: torch.Tensor

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            raise AssertionError(func)

    inner = torch.zeros(10 * KB)
    wrapper = torch.Tensor._make_wrapper_subclass(Wrapper, (10**6,))  # type: ignore[attr-defined]
    wrapper.inner = inner
    result = seen(engine, wrapper)
    assert result.payload_bytes == {"host": 40 * KB}
    assert 40 * KB < host_bytes(result, wrapper) < 41 * KB


def test_parameters_and_gradients_are_flagged(engine: str) -> None:
    model = torch.nn.Linear(100, 100, bias=False)
    model(torch.ones(1, 100)).sum().backward()
    result = seen(engine, model, marked_types=(torch.optim.Optimizer, torch.nn.Module))
    assert sorted(result.tensors.flags) == [PARAMETER, GRADIENT]
    assert list(result.tensors.mark) == [1, 1]
    assert result.payload_bytes == {"host": 2 * 40 * KB}


def test_tensors_name_their_nearest_selected_holder(engine: str) -> None:
    history = [[torch.zeros(10)] for _ in range(100)]
    holder = {"history": history}
    result = seen(engine, holder, cutoff_bytes=4000)
    at = next(i for i, o in enumerate(result.nodes.objects) if o is history)
    assert set(result.tensors.holder) == {at}


class TestGraphs:
    """Autograd: the graph behind one scalar."""

    def total_loss(self, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        weight = torch.ones(KB, requires_grad=True)
        total = torch.zeros(())
        for _ in range(steps):
            total = total + (weight * weight).exp().sum()
        return total, weight

    def test_a_running_total_retains_its_graph_and_what_that_saved(self, engine: str) -> None:
        total, weight = self.total_loss(50)
        result = seen(engine, total, weight)
        assert result.nodes.graph_nodes[0] == 4 * 50 + 1  # add, sum, exp, mul; one accumulator
        assert result.nodes.keeps_graph[0]
        assert result.nodes.host_bytes[0] >= 50 * 4 * KB
        assert result.graph_bytes == {"host": 50 * 4 * KB}
        assert result.payload_bytes["host"] == 51 * 4 * KB + 4
        by_graph = [f for f in result.tensors.flags if f & BY_GRAPH]
        assert len(by_graph) == 50

    def test_a_detached_total_retains_nothing(self, engine: str) -> None:
        total = self.total_loss(50)[0].detach()
        result = seen(engine, total, cutoff_bytes=0)
        assert result.graph_nodes == 0
        assert not result.nodes.keeps_graph[0]

    def test_a_freed_graph_saves_nothing_any_more(self, engine: str) -> None:
        total, weight = self.total_loss(20)
        total.backward()
        result = seen(engine, total, weight)
        assert result.graph_nodes == 81
        assert result.graph_bytes == {"host": 0}

    def test_objects_that_only_a_graph_holds_get_no_row(self, engine: str) -> None:
        total, _ = self.total_loss(20)
        result = seen(engine, total, cutoff_bytes=1000)
        assert [o is total for o in result.nodes.objects] == [True]

    def test_the_budget_cuts_a_graph_short_and_says_so(self, engine: str) -> None:
        total, _ = self.total_loss(50)
        result = seen(engine, total, graph_budget=30)
        assert result.graph_truncated
        assert result.graph_nodes == 30

    def test_recomputing_checkpoints_are_not_run(self, engine: str) -> None:
        runs = []

        def block(x: torch.Tensor) -> torch.Tensor:
            runs.append(1)
            return (x * x).exp()

        x = torch.ones(KB, requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        result = seen(engine, y, x)
        assert len(runs) == 1
        assert result.graph_nodes >= 2

    def test_unpack_hooks_are_not_run_and_packed_objects_are_found(self, engine: str) -> None:
        packed = []

        def pack(tensor: torch.Tensor) -> object:
            packed.append([bytearray(50_000)])
            return packed[-1]

        def unpack(_: object) -> torch.Tensor:
            raise AssertionError("unpacked")

        x = torch.ones(3, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = x.exp()
        packed.clear()
        assert host_bytes(seen(engine, y, x), y) > 50_000

    def test_custom_functions_hold_their_context(self, engine: str) -> None:
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(x.clone())
                ctx.note = bytearray(70_000)
                return x * 2

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
                return gradient * 2

        x = torch.ones(10 * KB, requires_grad=True)
        y = Double.apply(x)
        result = seen(engine, y, x)
        assert host_bytes(result, y) >= 40 * KB + 40 * KB + 70_000
        assert result.graph_nodes == 2

    def test_outputs_kept_with_their_graph_are_flagged(self, engine: str) -> None:
        x = torch.ones(KB, requires_grad=True)
        outputs = [x * i for i in range(3)]
        result = seen(engine, outputs, x)
        assert sum(bool(f & KEEPS_GRAPH) for f in result.tensors.flags) == 3


class TestArrays:
    """NumPy arrays and images."""

    def test_data_counts_once_and_with_its_owner(self, engine: str) -> None:
        whole = np.zeros(100 * KB)
        views = [whole[i:] for i in range(10)]
        result = seen(engine, views)
        assert result.payload_bytes == {"host": 800 * KB}
        assert host_bytes(result, views) > 800 * KB

    def test_an_array_over_a_tensor_keeps_the_storage(self, engine: str) -> None:
        array = torch.zeros(10 * KB).numpy()
        assert 40 * KB <= host_bytes(seen(engine, array), array) < 41 * KB

    def test_arrays_of_objects_keep_their_elements(self, engine: str) -> None:
        array = np.empty(4, dtype=object)
        array[2] = [bytearray(50_000)]
        assert host_bytes(seen(engine, array), array) > 50_000

    def test_an_images_pixels_are_counted(self, engine: str) -> None:
        image_module = pytest.importorskip("PIL.Image")
        images = [image_module.new(mode, (100, 50)) for mode in ("RGB", "L", "I;16")]
        result = seen(engine, images)
        assert result.payload_bytes == {"host": 5000 * (4 + 1 + 2)}

    def test_the_pixels_that_matplotlib_draws_on_are_counted(self, engine: str) -> None:
        agg = pytest.importorskip("matplotlib.backends.backend_agg")
        figures = pytest.importorskip("matplotlib.figure")
        canvas = agg.FigureCanvasAgg(figures.Figure(figsize=(4, 3), dpi=100))
        pixels = canvas.get_renderer()._renderer
        assert host_bytes(seen(engine, pixels), pixels) >= 400 * 300 * 4


def test_a_gradient_of_a_leaf_found_by_name_is_not_weighed_twice(engine: str) -> None:
    weight = torch.ones(KB, requires_grad=True)
    (weight * 2).sum().backward()
    gradients = [weight.grad]
    result = seen(engine, gradients, weight)
    assert result.payload_bytes == {"host": 8 * KB}
    assert sorted(result.tensors.flags) == [0, GRADIENT]
    gc.collect()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_device_memory_is_distinguished(engine: str) -> None:
    history = [torch.zeros(10 * KB, device="cuda:0") for _ in range(5)]
    result = seen(engine, history, torch.zeros(KB))
    assert result.payload_bytes == {"host": 4 * KB, "cuda:0": 200 * KB}
    assert result.nodes.device_bytes[0] == {"cuda:0": 200 * KB}
