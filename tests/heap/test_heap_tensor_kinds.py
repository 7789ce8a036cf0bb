"""Tensors that are no plain ones: subclasses, wrappers, functorch, quantized, nested, sparse."""

from __future__ import annotations

from typing import Any

import pytest
from payloads import ENGINES, KB, payload, retained, seen

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

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("form", ["to_sparse", "to_sparse_csr", "to_mkldnn"])
    def test_memory_that_torch_tells_only_by_an_operation_is_left_out(
        self, engine: str, form: str
    ) -> None:
        """Operations release the GIL: the heap would change under the walk."""
        tensor = getattr(torch.eye(100), form)()
        result = seen(engine, tensor)
        assert result.payload_bytes == {"host": 0}
        assert list(result.tensors.storage) == [-1]

    def test_packed_sequences_have_their_parts(self, engine: str) -> None:
        packed = torch.nn.utils.rnn.pack_sequence([torch.zeros(10 * KB)])
        assert payload(engine, packed)["host"] == pytest.approx(40 * KB + 8 * 10 * KB, rel=0.01)
