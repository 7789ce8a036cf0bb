"""The history of allocations on a real device: ours in a window, the program's never touched."""

from __future__ import annotations

from typing import Any

import pytest

from leakscope.model.record import BlockListRecord
from leakscope.probes.cuda import AllocationHistory, device_memory

pytestmark = pytest.mark.gpu
MIB = 1 << 20


def stacks() -> list[str]:
    records = device_memory(with_blocks=True)
    return [
        frame.name
        for record in records
        if isinstance(record, BlockListRecord)
        for stack in record.stacks
        for frame in stack
    ]


def allocate(device: str) -> Any:
    import torch

    return torch.empty(3 * MIB, dtype=torch.uint8, device=device)


def test_a_window_tells_who_allocated_and_ends(device: str) -> None:
    import torch

    before = allocate(device)
    history = AllocationHistory()
    assert history.open()
    kept = allocate(device)
    assert "allocate" in stacks()
    history.close()
    assert not torch._C._cuda_isHistoryEnabled()
    assert before.nbytes == kept.nbytes


def test_the_programs_own_recording_goes_on(device: str) -> None:
    import torch

    torch.cuda.memory._record_memory_history(max_entries=1000)
    try:
        history = AllocationHistory()
        assert not history.open()
        history.close()
        kept = allocate(device)
        assert torch._C._cuda_isHistoryEnabled()
        actions = [e["action"] for e in torch.cuda.memory._snapshot()["device_traces"][0]]
        assert "alloc" in actions
        assert kept.nbytes
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def test_one_that_the_program_begins_within_a_window_goes_on(device: str) -> None:
    import torch

    history = AllocationHistory()
    assert history.open()
    torch.cuda.memory._record_memory_history(max_entries=1000)
    try:
        kept = [allocate(device) for _ in range(4)]
        history.close()
        assert torch._C._cuda_isHistoryEnabled()
        assert len(kept) == 4
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
