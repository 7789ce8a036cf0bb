"""`clear_memory` tells what each step really freed, and wakes nothing."""

from __future__ import annotations

import gc
import platform
from collections.abc import Iterator

import pytest
import torch

from leakscope import cleanup
from leakscope.cleanup import clearing
from leakscope.cleanup.levels import NOT_USED

MIB = 1 << 20

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")


class Node:
    me: Node
    tensor: torch.Tensor


@pytest.fixture
def no_automatic_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leave_a_cycle(size: int) -> None:
    node = Node()
    node.me = node
    node.tensor = torch.ones(size, dtype=torch.uint8)


@glibc
def test_garbage_is_reported_in_bytes_and_objects(no_automatic_collection: None) -> None:
    leave_a_cycle(64 * MIB)
    cleared = cleanup.clear_memory()
    assert 63 * MIB < cleared.host_freed < 66 * MIB
    assert cleared.objects >= 2
    assert "gc.collect() freed 64 MiB of the host's memory (" in str(cleared)


def test_what_is_referred_to_stays(no_automatic_collection: None) -> None:
    kept = torch.ones(64 * MIB, dtype=torch.uint8)
    cleared = cleanup.clear_memory(force=True)
    assert cleared.host_freed < 8 * MIB
    assert kept[-1] == 1


@glibc
def test_force_returns_what_the_c_library_keeps(no_automatic_collection: None) -> None:
    blocks = [bytearray(60_000) for _ in range(1000)]
    last = bytearray(60_000)
    del blocks[:]  # the last block keeps the heap from shrinking by itself
    cleanup.clear_memory()
    cleared = cleanup.clear_memory(force=True)
    trim = cleared.steps[-1]
    assert trim.name == clearing.TRIM
    assert trim.host_returned > 40 * MIB
    assert len(last) == 60_000


def test_without_force_the_c_library_is_left_alone() -> None:
    assert [step.name for step in cleanup.clear_memory().steps] == [clearing.COLLECT]


@without_cuda
def test_without_a_gpu_a_sentence_says_so() -> None:
    cleared = cleanup.clear_memory(force=True)
    assert NOT_USED in cleared.remarks
    assert cleared.device_freed == cleared.device_returned == {}


def test_another_c_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearing, "trim_function", lambda: None)
    assert "not glibc" in " ".join(cleanup.clear_memory(force=True).remarks)


def test_a_step_that_fails_is_reported_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise OSError("no")

    monkeypatch.setattr(clearing, "trim_function", lambda: refuse)
    cleared = cleanup.clear_memory(force=True)
    assert [step.name for step in cleared.steps] == [clearing.COLLECT]
    assert any(remark.startswith("malloc_trim(0) failed: OSError") for remark in cleared.remarks)


def test_changes_below_the_noise_are_called_nothing() -> None:
    level = clearing.Level.now()
    step = clearing.difference(clearing.COLLECT, level, level, 0.0, 3)
    assert "nothing that can be measured (3 objects, " in str(step)
