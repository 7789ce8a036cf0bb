"""Host memory that isn't the process's own: shared with others, or pages of a file."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optional_torch import needs_torch, torch
from payloads import ENGINES, KB, payload, retained, seen

from leakscope.heap import contents

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only the kernel of Linux tells of mappings"
)
SIZE = 400 * KB


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(SIZE))
    return path


@pytest.fixture
def segment() -> Iterator[shared_memory.SharedMemory]:
    made = shared_memory.SharedMemory(create=True, size=SIZE)
    yield made
    made.unlink()


class TestFiles:
    """Mapped files."""

    def test_an_array_over_a_file_is_not_private_memory(self, engine: str, file: Path) -> None:
        mapped = np.memmap(file, dtype="u1", mode="r")
        assert payload(engine, mapped) == {"file": SIZE}
        assert retained(seen(engine, mapped), mapped) < 2 * KB

    def test_a_copy_of_it_is(self, engine: str, file: Path) -> None:
        assert payload(engine, np.array(np.memmap(file, dtype="u1", mode="r"))) == {"host": SIZE}

    def test_views_count_once(self, engine: str, file: Path) -> None:
        mapped = np.memmap(file, dtype="u1", mode="r")
        assert payload(engine, [mapped, mapped[KB:], mapped._mmap]) == {"file": SIZE}

    @needs_torch
    def test_a_tensor_over_it_is_part_of_it(self, engine: str, file: Path) -> None:
        mapped = np.memmap(file, dtype="u1", mode="r+")
        assert payload(engine, [mapped, torch.from_numpy(mapped)]) == {"file": SIZE}
        assert payload(engine, [torch.from_numpy(mapped)]) == {"file": SIZE}

    @needs_torch
    @pytest.mark.parametrize("shared", [False, True])
    def test_a_tensor_from_a_file(self, engine: str, file: Path, shared: bool) -> None:
        tensor = torch.from_file(str(file), shared=shared, size=SIZE // 4)
        assert payload(engine, tensor) == {"file": SIZE}
        assert retained(seen(engine, tensor), tensor) < KB

    @needs_torch
    def test_a_checkpoint_that_is_mapped(self, engine: str, tmp_path: Path) -> None:
        weights = {name: torch.zeros(50 * KB) for name in "ab"}
        torch.save(weights, tmp_path / "weights.pt")
        loaded = torch.load(tmp_path / "weights.pt", mmap=True)
        assert set(payload(engine, loaded)) == {"file"}
        assert payload(engine, torch.load(tmp_path / "weights.pt")) == {"host": 400 * KB}


class TestSharedMemory:
    """Memory that other processes can map: it is host memory, and distinguished from it."""

    def test_an_anonymous_mapping(self, engine: str) -> None:
        with mmap.mmap(-1, SIZE) as mapping:
            assert payload(engine, mapping) == {"shared": SIZE}
            assert retained(seen(engine, mapping), mapping) > SIZE

    def test_a_private_anonymous_mapping_is_private(self, engine: str) -> None:
        with mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapping:
            assert payload(engine, mapping) == {"host": SIZE}

    def test_a_closed_mapping_weighs_nothing(self, engine: str) -> None:
        mapping = mmap.mmap(-1, SIZE)
        mapping.close()
        assert payload(engine, mapping) == {}

    def test_a_segment_and_the_arrays_over_it(
        self, engine: str, segment: shared_memory.SharedMemory
    ) -> None:
        arrays = [np.ndarray(SIZE, dtype="u1", buffer=segment.buf) for _ in range(3)]
        sizes = payload(engine, arrays, segment)
        arrays.clear()
        segment.close()
        assert sizes == {"shared": SIZE}

    @needs_torch
    def test_a_shared_tensor(self, engine: str) -> None:
        tensor = torch.zeros(SIZE // 4).share_memory_()
        result = seen(engine, [tensor, tensor[5:]], torch.zeros(KB))
        assert result.payload_bytes == {"host": 4 * KB, "shared": SIZE}
        assert result.nodes.host_bytes[0] > SIZE
        assert result.devices == ["host"]

    @needs_torch
    @pytest.mark.slow
    def test_batches_from_a_worker_are_shared(self, engine: str) -> None:
        loader: Any = torch.utils.data.DataLoader(
            [torch.zeros(50 * KB)] * 4, batch_size=2, num_workers=1
        )
        assert payload(engine, list(loader)) == {"shared": 4 * 200 * KB}

    @needs_torch
    def test_tensors_say_so(self) -> None:
        assert contents.form_of(torch.zeros(3)) == "float32 (3,) on cpu"
        assert contents.form_of(torch.zeros(3).share_memory_()) == "float32 (3,) on cpu, shared"


@needs_torch
@pytest.mark.gpu
def test_pinned_tensors_say_so() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    torch.cuda.init()
    assert contents.form_of(torch.zeros(3).pin_memory()) == "float32 (3,) on cpu, pinned"
    assert contents.form_of(torch.zeros(3)) == "float32 (3,) on cpu"


@needs_torch
@pytest.mark.skipif(len(ENGINES) < 2, reason="the native engine is not built")
def test_both_engines_tell_the_same_totals_by_type(file: Path) -> None:
    mapped = np.memmap(file, dtype="u1", mode="r+")
    array = np.zeros(KB)
    holder = [
        mapped,
        mmap.mmap(-1, SIZE),
        array,
        torch.from_numpy(array),
        torch.zeros(KB).untyped_storage(),
        torch.zeros(KB).share_memory_(),
        np.from_dlpack(torch.zeros(KB)),
    ]
    found = [
        {total.type: total for total in seen(engine, holder, count_types=True).types}
        for engine in ENGINES
    ]
    kinds = [type(value) for value in holder]
    assert [found[0][k] for k in kinds] == [found[1][k] for k in kinds]
    assert found[0][mmap.mmap].payload_bytes == {"host": SIZE}
    assert found[0][torch.UntypedStorage].payload_bytes == {"host": 4 * KB}
