"""Memory that torch, NumPy and buffers share though no reference tells: its bytes count once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from payloads import ENGINES, KB, payload, retained, seen

from leakscope.heap.graph import leak_shares

torch = pytest.importorskip("torch")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestLoneStorages:
    """A storage that a program holds itself."""

    def test_it_weighs_its_memory(self, engine: str) -> None:
        storage = torch.zeros(10 * KB).untyped_storage()
        assert payload(engine, [storage]) == {"host": 40 * KB}
        assert 40 * KB < retained(seen(engine, storage), storage) < 41 * KB

    @pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
    def test_a_typed_storage_weighs_what_it_wraps(self, engine: str) -> None:
        storage = torch.zeros(10 * KB).storage()
        assert payload(engine, [storage]) == {"host": 40 * KB}

    @pytest.mark.parametrize("first", [0, 1])
    def test_tensors_share_it(self, engine: str, first: int) -> None:
        tensor = torch.zeros(10 * KB)
        both = [tensor.untyped_storage(), tensor[5:]]
        history, other = [both[first]], [both[1 - first]]
        result = seen(engine, history, other)
        assert result.payload_bytes == {"host": 40 * KB}
        assert retained(result, history) < KB
        assert retained(result, other) < KB

    def test_storages_without_memory_weigh_nothing(self, engine: str) -> None:
        meta = torch.empty(10**6, device="meta").untyped_storage()
        assert payload(engine, [meta, torch.UntypedStorage(0)]) == {}

    def test_memory_copied_on_write_stays_shared(self, engine: str) -> None:
        tensor = torch.zeros(10 * KB)
        twin = torch._lazy_clone(tensor)
        seen(engine, [tensor.untyped_storage(), twin.untyped_storage(), twin])
        assert torch._C._is_cow_tensor(twin)


SHARING: dict[str, Any] = {
    "the whole": lambda array: torch.from_numpy(array),
    "a part": lambda array: torch.from_numpy(array[KB:]),
    "by its buffer": lambda array: torch.frombuffer(array, dtype=torch.float64),
    "by dlpack": lambda array: torch.from_dlpack(array),
    "by its storage": lambda array: torch.from_numpy(array).untyped_storage(),
    "there and back": lambda array: torch.from_numpy(torch.from_numpy(array).numpy()),
}


class TestArraysAndTensors:
    """NumPy and torch over one memory."""

    @pytest.mark.parametrize("order", [1, -1])
    @pytest.mark.parametrize("way", SHARING)
    def test_their_memory_counts_once(self, engine: str, way: str, order: int) -> None:
        array = np.zeros(10 * KB)
        both = [array, SHARING[way](array)][::order]
        assert payload(engine, both) == {"host": 80 * KB}

    def test_a_copy_counts_for_itself(self, engine: str) -> None:
        array = np.zeros(10 * KB)
        assert payload(engine, [array, torch.from_numpy(array).clone()]) == {"host": 160 * KB}

    def test_neither_retains_what_both_hold(self, engine: str) -> None:
        array = np.zeros(10 * KB)
        arrays, tensors = [array], [torch.from_numpy(array[:KB])]
        result = seen(engine, arrays, tensors)
        assert retained(result, arrays) < KB
        assert retained(result, tensors) < KB

    def test_a_tensor_alone_has_what_it_sees_of_its_array(self, engine: str) -> None:
        tensor = torch.from_numpy(np.zeros(10 * KB))
        assert 80 * KB < retained(seen(engine, tensor), tensor) < 81 * KB

    def test_tensors_over_one_array_count_once(self, engine: str) -> None:
        array = np.zeros(10 * KB)
        tensors = [torch.from_numpy(array[i * KB :]) for i in range(5)]
        del array
        assert payload(engine, tensors) == {"host": 80 * KB}

    def test_neighbours_are_distinguished(self, engine: str) -> None:
        arrays = [np.zeros(KB) for _ in range(50)]
        tensors = [torch.from_numpy(a) for a in arrays[::2]]
        assert payload(engine, [arrays, tensors]) == {"host": 50 * 8 * KB}

    def test_an_array_over_a_tensor_is_a_view(self, engine: str) -> None:
        tensor = torch.zeros(10 * KB)
        both = [tensor.numpy(), np.from_dlpack(tensor), tensor]
        assert payload(engine, both) == {"host": 40 * KB}

    def test_an_array_that_a_library_keeps_has_its_memory(self, engine: str) -> None:
        array = np.from_dlpack(torch.zeros(10 * KB))
        assert 40 * KB < retained(seen(engine, array), array) < 41 * KB

    def test_tensors_name_the_memory_that_they_share(self, engine: str) -> None:
        array = np.zeros(10 * KB)
        tensors = [torch.from_numpy(array), torch.from_numpy(array[KB:])]
        columns = seen(engine, tensors, array).tensors
        assert len(set(columns.storage)) == 1
        assert list(columns.nbytes) == [80 * KB + array.__sizeof__() - array.nbytes] * 2

    def test_containers_that_share_it_share_its_growth(self, engine: str) -> None:
        kept = [np.zeros(KB) for _ in range(10)]
        history = [torch.from_numpy(a) for a in kept]
        result = seen(engine, kept, history, keep_graph=True)
        groups = [[result.nodes.number[0]], [result.nodes.number[1]]]
        shares = leak_shares(result, groups)
        assert [share.others for share in shares] == [[1], [0]]
        assert all(40 * KB < share.bytes["host"] < 44 * KB for share in shares)


class TestBuffers:
    """Tensors and arrays over the buffer of another object."""

    @pytest.mark.filterwarnings("ignore:The given buffer is not writable")
    @pytest.mark.parametrize("make", [bytes, bytearray])
    def test_a_buffer_counts_once(self, engine: str, make: Any) -> None:
        buffer = make(80 * KB)
        tensor = torch.frombuffer(buffer, dtype=torch.uint8, offset=KB)
        result = seen(engine, [tensor, buffer])
        assert 80 * KB < result.heap_bytes < 81 * KB
        assert result.payload_bytes == {"host": 0}

    def test_a_buffer_that_only_a_tensor_keeps_is_the_tensors(self, engine: str) -> None:
        tensor = torch.frombuffer(bytearray(80 * KB), dtype=torch.uint8)
        assert 80 * KB < retained(seen(engine, tensor), tensor) < 81 * KB

    def test_an_array_over_bytes_has_none_of_its_own(self, engine: str) -> None:
        result = seen(engine, np.frombuffer(bytes(80 * KB)))
        assert result.payload_bytes == {"host": 0}
        assert 80 * KB < result.heap_bytes < 81 * KB
