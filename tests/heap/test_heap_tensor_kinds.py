"""Tensors that are no plain ones: subclasses, wrappers, functorch, quantized, nested, sparse."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from payloads import ENGINES, KB, payload, retained, seen

from leakscope.heap import graph

torch = pytest.importorskip("torch")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Hostile(torch.Tensor):  # type: ignore[misc]
    """Whatever is dispatched to it fails."""

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError(function)

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError(function)


def wrapper(inner: Any, **options: Any) -> Any:
    made = torch.Tensor._make_wrapper_subclass(Hostile, (10**6,), **options)
    object.__setattr__(made, "inner", inner)
    return made


class TestSubclasses:
    def test_one_that_has_its_own_memory(self, engine: str) -> None:
        tensor = torch.Tensor._make_subclass(Hostile, torch.zeros(10 * KB))
        assert payload(engine, [tensor]) == {"host": 40 * KB}

    def test_one_that_wraps_weighs_what_it_wraps(self, engine: str) -> None:
        inner = torch.zeros(10 * KB)
        holder = [wrapper(inner), wrapper(wrapper(inner))]
        assert payload(engine, holder) == {"host": 40 * KB}

    def test_one_that_claims_to_be_elsewhere_weighs_what_it_wraps(self, engine: str) -> None:
        holder = [wrapper(torch.zeros(10 * KB), device="cuda:0")]
        assert payload(engine, holder) == {"host": 40 * KB}

    def test_inner_tensors_that_are_shared_are_retained_by_neither(self, engine: str) -> None:
        inner = torch.zeros(10 * KB)
        first, second = [wrapper(inner)], [wrapper(inner)]
        result = seen(engine, first, second)
        assert retained(result, first) < 2 * KB

    def test_a_functional_wrapper_claims_nothing(self, engine: str) -> None:
        assert payload(engine, torch._to_functional_tensor(torch.zeros(10 * KB))) == {}


class TestFunctorch:
    def test_a_tensor_that_escaped_from_vmap_keeps_what_it_wraps(self, engine: str) -> None:
        escaped = []
        torch.func.vmap(lambda x: escaped.append(x) or x)(torch.zeros(10, KB))
        assert payload(engine, escaped) == {"host": 40 * KB}

    def test_batches_of_one_tensor_count_once(self, engine: str) -> None:
        escaped = []
        whole = torch.zeros(10, KB)
        for _ in range(3):
            torch.func.vmap(lambda x: escaped.append(x) or x)(whole)
        assert payload(engine, escaped, whole) == {"host": 40 * KB}


class TestLayouts:
    def test_quantized_tensors_have_small_items(self, engine: str) -> None:
        tensor = torch.quantize_per_tensor(torch.zeros(10 * KB), 0.1, 0, torch.qint8)
        assert payload(engine, tensor) == {"host": 10 * KB}

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
    def test_nested_tensors_have_their_buffer(self, engine: str, layout: Any) -> None:
        parts = [torch.zeros(5 * KB, 2) for _ in range(2)]
        tensor = torch.nested.nested_tensor(parts, layout=layout)
        assert payload(engine, [tensor])["host"] == pytest.approx(80 * KB, rel=0.01)

    def test_conjugates_share_their_memory(self, engine: str) -> None:
        tensor = torch.zeros(10 * KB, dtype=torch.complex64)
        assert payload(engine, [tensor, tensor.conj(), tensor.real]) == {"host": 80 * KB}

    def test_packed_sequences_have_their_parts(self, engine: str) -> None:
        packed = torch.nn.utils.rnn.pack_sequence([torch.zeros(10 * KB)])
        assert payload(engine, packed)["host"] == pytest.approx(40 * KB + 8 * 10 * KB, rel=0.01)


PARTS = {
    "to_sparse": ("_indices", "_values"),
    "to_sparse_csr": ("crow_indices", "col_indices", "values"),
    "to_sparse_csc": ("ccol_indices", "row_indices", "values"),
    "to_sparse_bsr": ("crow_indices", "col_indices", "values"),
    "to_sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


@pytest.mark.filterwarnings("ignore")
class TestTensorsOfParts:
    """Their parts are requested between two walks."""

    @pytest.mark.parametrize("form", list(PARTS))
    def test_sparse_tensors_weigh_their_parts(self, engine: str, form: str) -> None:
        tensor = getattr(torch.eye(KB), form)(*([(10, 10)] if "_bs" in form else []))
        parts = [getattr(tensor, name)() for name in PARTS[form]]
        weight = sum(part.untyped_storage().nbytes() for part in parts)
        holder = [tensor]
        del parts
        result = seen(engine, holder)
        assert weight >= (4 + 8) * KB
        assert result.payload_bytes == {"host": weight}
        assert weight <= retained(result, holder) < weight + KB
        assert sum(result.tensors.nbytes) == weight
        assert len(result.tensors.nbytes) == len(PARTS[form])
        assert list(result.tensors.address) == [
            getattr(tensor, name)().untyped_storage().data_ptr() for name in PARTS[form]
        ]
        assert {result.nodes.objects[i] is tensor for i in result.tensors.holder} == {True}

    def test_what_onednn_keeps(self, engine: str) -> None:
        tensor = torch.eye(100).to_mkldnn()
        assert payload(engine, [tensor, tensor.detach()]) == {"host": 40 * KB}
        assert list(seen(engine, tensor).tensors.address) == [torch.ops.mkldnn.data_ptr(tensor)]

    def test_parts_that_are_shared_count_once(self, engine: str) -> None:
        places, values = torch.arange(KB).reshape(1, -1), torch.zeros(KB)
        tensor = torch.sparse_coo_tensor(places, values, (KB,), check_invariants=False)
        lone, both = [tensor], [tensor, tensor.detach(), values, places]
        assert payload(engine, both) == {"host": 12 * KB}
        assert retained(seen(engine, lone, [values, places]), lone) < KB

    def test_they_have_no_part_that_can_not_be_read(self, engine: str) -> None:
        rows = torch.zeros(KB)
        tensor = torch.sparse_coo_tensor(torch.zeros(1, 10, dtype=torch.int64), rows[:10], (KB,))
        del rows
        assert not any(seen(engine, [tensor]).nodes.unused_bytes)

    def test_sparse_gradients_are_gradients(self, engine: str) -> None:
        table = torch.nn.Embedding(KB, 100, sparse=True)
        table(torch.arange(500)).sum().backward()
        result = seen(engine, [table])
        columns = zip(result.tensors.nbytes, result.tensors.flags, strict=True)
        shown = sum(nbytes for nbytes, flags in columns if flags & 2)
        assert shown == pytest.approx(500 * (400 + 8), rel=0.1)

    def test_a_class_of_the_users_is_not_called(self, engine: str) -> None:
        made = torch.Tensor._make_wrapper_subclass(Hostile, (10, 10), layout=torch.sparse_coo)
        assert payload(engine, [made]) == {}

    def test_every_look_sees_what_there_is_now(self, engine: str) -> None:
        holder = [torch.eye(KB).to_sparse()]
        assert payload(engine, holder) == {"host": 20 * KB}
        holder[0] = torch.eye(2 * KB).to_sparse()
        assert payload(engine, holder) == {"host": 40 * KB}

    def test_neither_modes_nor_autograd_see_the_questions(self, engine: str) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        class Refusing(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, *_: Any, **__: Any) -> Any:
                raise AssertionError(function)

        tensor = torch.eye(KB).to_sparse_csr().requires_grad_()
        with Refusing():
            assert payload(engine, [tensor])["host"] > 20 * KB
        assert tensor.grad_fn is None

    @pytest.mark.slow
    def test_garbage_weighs_its_parts_at_every_look(self, engine: str) -> None:
        gc.collect()
        gc.disable()
        try:
            places = torch.arange(30 * KB).expand(2, -1)
            made = torch.sparse_coo_tensor(places, torch.ones(30 * KB), (30 * KB, 30 * KB))
            ring: list[Any] = [made.clone()]
            ring.append(ring)
            del ring, made, places
            looks = [seen(engine, full=True, cutoff_bytes=16384).garbage_bytes for _ in range(2)]
        finally:
            gc.enable()
            gc.collect()
        assert looks == pytest.approx([600 * KB] * 2, rel=0.05)

    def test_where_there_is_none_one_walk_is_enough(
        self, engine: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        requested: list[object] = []
        read = graph.read_parts
        monkeypatch.setattr(
            graph, "read_parts", lambda *arguments: requested.append(arguments) or read(*arguments)
        )
        seen(engine, [torch.zeros(10), torch.zeros(10, device="meta")])
        assert [opaque for opaque, _ in requested] == [[]]
