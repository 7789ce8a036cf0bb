"""What no tensor and no array can read any more, and look-alikes that read it all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from heap_programs import RunProgram
from hypothesis import given, settings
from hypothesis import strategies as st
from payloads import ENGINES, KB, seen, unused

torch = pytest.importorskip("torch")

ITEM = 4
WHOLE = ITEM * KB


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def numbers(count: int = KB) -> Any:
    return torch.zeros(count)


class Hostile(torch.Tensor):  # type: ignore[misc]
    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError(function)


class TestTensors:
    def test_a_slice_keeps_the_whole_storage(self, engine: str) -> None:
        assert unused(engine, [numbers()[:10]]) == WHOLE - 40

    def test_slices_without_a_base_do_too(self, engine: str) -> None:
        assert unused(engine, [numbers()[:10].detach()]) == WHOLE - 40

    def test_many_slices_of_many_storages(self, engine: str) -> None:
        assert unused(engine, [numbers()[i : i + 5] for i in range(50)]) == 50 * (WHOLE - 20)

    def test_a_whole_tensor_reads_all(self, engine: str) -> None:
        assert unused(engine, [numbers(), numbers().reshape(10, -1).T]) == 0

    def test_a_living_base_reads_all(self, engine: str) -> None:
        whole = numbers()
        assert unused(engine, [whole, whole[:10]]) == 0

    def test_a_base_that_somebody_else_has_reads_all(self, engine: str) -> None:
        """Whom a focused walk does not meet."""
        whole = numbers()
        assert unused(engine, [whole[:10]]) == 0
        assert len(whole) == KB

    def test_a_base_that_a_graph_needs_reads_all(self, engine: str) -> None:
        whole = numbers()
        part, loss = whole[:10], (torch.ones(KB, requires_grad=True) * whole).sum()
        del whole
        assert unused(engine, [part], graph_budget=0) == 0
        del loss
        assert unused(engine, [part]) == WHOLE - 40

    def test_two_halves_read_all(self, engine: str) -> None:
        assert unused(engine, list(numbers().split(KB // 2))) == 0

    def test_what_lies_between_two_slices_is_left(self, engine: str) -> None:
        whole = numbers()
        parts = [whole[:100], whole[50:200], whole[900:]]
        del whole
        assert unused(engine, parts) == 700 * ITEM

    def test_an_expanded_tensor_reads_few(self, engine: str) -> None:
        assert unused(engine, [numbers()[:10].expand(300, 10)]) == WHOLE - 40
        assert unused(engine, [numbers(1).expand(KB)]) == 0

    def test_strides_leave_out_what_lies_between(self, engine: str) -> None:
        assert unused(engine, [numbers()[::4]]) == WHOLE * 3 // 4

    def test_strides_that_interlock_read_all(self, engine: str) -> None:
        whole = numbers()
        parts = [whole[::2], whole[1::2]]
        del whole
        assert unused(engine, parts) == 0

    def test_an_empty_view_reads_nothing(self, engine: str) -> None:
        assert unused(engine, [numbers()[:0]]) == WHOLE

    def test_a_storage_that_is_held_itself_can_be_read(self, engine: str) -> None:
        part = numbers()[:10]
        assert unused(engine, [part, part.untyped_storage()]) == 0

    @pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
    def test_so_can_a_typed_one(self, engine: str) -> None:
        part = numbers()[:10]
        assert unused(engine, [part, part.storage()]) == 0

    def test_a_view_with_a_graph(self, engine: str) -> None:
        weight = torch.zeros(KB, requires_grad=True)
        assert unused(engine, [(weight * 1)[:10]]) == WHOLE - 40

    def test_sizes_that_a_class_computes_are_not_called(self, engine: str) -> None:
        part = torch.Tensor._make_subclass(Hostile, numbers()[:10])
        assert unused(engine, [part]) == 0

    @pytest.mark.filterwarnings("ignore")
    def test_a_buffer_of_nested_tensors_is_read(self, engine: str) -> None:
        nested = torch.nested.nested_tensor([numbers(10), numbers(20)])
        assert unused(engine, [nested]) == 0

    def test_a_gradient_keeps_a_bucket(self, engine: str) -> None:
        weight = torch.zeros(10, requires_grad=True)
        weight.grad = numbers()[:10]
        assert unused(engine, [weight]) == WHOLE - 40

    @pytest.mark.slow
    def test_it_is_the_same_in_a_full_walk(self, engine: str) -> None:
        whole = numbers()
        alone, shared = [numbers()[:10]], [whole[:10]]
        result = seen(engine, alone, shared, full=True)
        rows = list(zip(result.nodes.objects, result.nodes.unused_bytes, strict=True))
        of = [sum(row.values()) for wanted in (alone, shared) for o, row in rows if o is wanted]
        assert of == [WHOLE - 40, 0]

    def test_other_phases_have_none_of_it(self, engine: str) -> None:
        part = numbers()[:10]
        item, other = [part], [part]
        assert unused(engine, item, other) == 0

    def test_what_it_adds_up_to_is_retained_above(self, engine: str) -> None:
        holder = {"deep": [[numbers()[:10]], [numbers()[:10]]]}
        assert unused(engine, holder) == 2 * (WHOLE - 40)

    def test_a_second_walk_says_the_same(self, engine: str) -> None:
        holder = [numbers()[:10]]
        assert [unused(engine, holder) for _ in range(3)] == [WHOLE - 40] * 3


class TestBoth:
    def test_an_array_of_a_tensor(self, engine: str) -> None:
        assert unused(engine, [numbers().numpy()]) == 0
        assert unused(engine, [numbers().numpy()[:10]]) == WHOLE - 40
        assert unused(engine, [numbers()[:10].numpy()]) == WHOLE - 40

    def test_an_array_of_a_tensor_that_lives(self, engine: str) -> None:
        tensor = numbers()
        assert unused(engine, [tensor.numpy()[:10]]) == 0

    def test_a_tensor_of_an_array_that_lives(self, engine: str) -> None:
        array = np.zeros(KB)
        assert unused(engine, [array, torch.from_numpy(array)[:10]]) == 0

    def test_a_tensor_of_an_array_that_the_walk_can_not_see(self, engine: str) -> None:
        array = np.zeros(KB)
        assert unused(engine, [torch.from_numpy(array)[:10]]) == 0
        assert len(array) == KB

    def test_a_tensor_and_a_view_of_an_array_that_nobody_names(self, engine: str) -> None:
        array = np.zeros(KB)
        holder = [torch.from_numpy(array)[:10], array[5:30]]
        del array
        assert unused(engine, holder) == 8 * KB - 240

    @pytest.mark.parametrize("kind", [bytearray, bytes])
    @pytest.mark.filterwarnings("ignore:The given buffer is not writable")
    def test_memory_of_other_objects_is_not_judged(self, engine: str, kind: Any) -> None:
        buffer = kind(8 * KB)
        tensor = torch.frombuffer(buffer, dtype=torch.uint8)[:10]
        assert unused(engine, [buffer, tensor]) == 0

    def test_a_tensor_of_a_view(self, engine: str) -> None:
        array = np.zeros(KB)
        view = array[:100]
        holder = [view, torch.from_numpy(view)]
        assert unused(engine, holder, array) == 0


VIEWS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40)), max_size=3),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=6,
)


def reached(views: list[Any]) -> set[int]:
    """Return the addresses of all elements."""
    found: set[int] = set()
    for view in views:
        places = {view.storage_offset()}
        for size, stride in zip(view.shape, view.stride(), strict=True):
            places = {place + i * stride for place in places for i in range(size)}
        found |= places if view.numel() else set()
    return found


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=150, deadline=None)
@given(VIEWS)
def test_never_more_is_unused_than_the_elements_leave(engine: str, forms: Any) -> None:
    whole = torch.zeros(256)
    views = [
        torch.as_strided(whole, [size for size, _ in dims], [step for _, step in dims], offset)
        for dims, offset in forms
        if offset + sum(max(0, size - 1) * step for size, step in dims) < 256
    ]
    del whole
    left = 256 - len(reached(views))
    shown = unused(engine, views) // ITEM
    assert shown <= left
    flat = all(view.is_contiguous() for view in views)
    if views and (flat or (len(views) == 1 and _lies_apart(views[0]))):
        assert shown == left


def _lies_apart(view: Any) -> bool:
    """No two indices lead to one element, but through strides of zero."""
    sizes = [n for n, step in zip(view.shape, view.stride(), strict=True) if step]
    count = 1
    for size in sizes:
        count *= size
    return view.numel() == 0 or len(reached([view])) == count


def test_both_engines_tell_the_same() -> None:
    whole = np.zeros(KB)
    parts = torch.zeros(KB).split(10)
    holder = {"a": parts[3], "b": [whole[7:90], parts[50]], "c": torch.zeros(KB)[::3]}
    del whole, parts
    shown = [seen(engine, holder).nodes.unused_bytes for engine in ENGINES]
    assert shown[0] == shown[-1]
    assert any(shown[0])


def test_rows_and_their_contents_tell(run_program: RunProgram) -> None:
    taken = run_program("""
        import torch
        class Trainer:
            def __init__(self):
                self.firsts = [torch.zeros(100_000)[:10] for _ in range(5)]
                self.wholes = [torch.zeros(100_000) for _ in range(5)]
        trainer = Trainer()
        look()
    """)
    row = taken.row("Trainer.firsts")
    assert row.unused_bytes == {"host": 5 * (400_000 - 40)}
    assert row.holds[0].detail == "float32 (10,) on cpu, 1.9 MiB unused"
    assert taken.row("trainer").unused_bytes == row.unused_bytes
    assert taken.row("Trainer.wholes").unused_bytes == {}
