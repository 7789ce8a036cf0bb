"""The list of blocks: what a snapshot says, small enough to be recorded."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import pytest

from leakscope.model.device import BlockState, FrameRow
from leakscope.model.record import BlockListRecord, DeviceSnapshotRecord
from leakscope.probes import cuda as module
from leakscope.probes.cuda import allocator_settings, device_memory, list_blocks
from leakscope.recording.format import decode_record, encode_record

MB = 1 << 20
FRAMES = [{"filename": "/u/train.py", "line": 3, "name": "step"}]


def block(size: int, state: str = "active_allocated", **more: Any) -> dict[str, Any]:
    return {"size": size, "requested_size": size - 8, "state": state, "frames": [], **more}


def segment(*blocks: dict[str, Any], address: int = 0, **more: Any) -> dict[str, Any]:
    size = sum(b["size"] for b in blocks)
    return {"device": 0, "address": address, "total_size": size, "stream": 5,
            "segment_type": "large", "blocks": list(blocks), **more}  # fmt: skip


def listed(*segments: dict[str, Any], **settings: str) -> list[BlockListRecord]:
    return list_blocks(segments, settings=settings)


def test_segments_and_blocks_are_reported_with_what_tells_their_pool() -> None:
    (record,) = listed(
        segment(block(512), segment_pool_id=(0, 3), segment_type="small", is_expandable=True)
    )
    (row,) = record.segments
    assert (row.stream, row.pool, row.is_small, row.is_expandable) == (5, (0, 3), True, True)
    assert (row.blocks[0].size, row.blocks[0].requested, row.blocks[0].state) == (
        512,
        504,
        BlockState.ALLOCATED,
    )


def test_a_free_block_forgets_its_last_owner() -> None:
    (record,) = listed(segment(block(512, "inactive", frames=FRAMES)))
    (free,) = record.segments[0].blocks
    assert (free.state, free.requested, free.stack) == (BlockState.FREE, 0, -1)
    assert record.stacks == []


@pytest.mark.parametrize("state", ["active_pending_free", "active_awaiting_free", "novelty"])
def test_whatever_is_neither_live_nor_free_is_pending(state: str) -> None:
    (record,) = listed(segment(block(512, state)))
    assert record.segments[0].blocks[0].state == BlockState.PENDING


def test_equal_stacks_are_kept_once() -> None:
    copy = [dict(f) for f in FRAMES]
    reported = [block(512, frames=FRAMES), block(512, frames=FRAMES), block(512, frames=copy)]
    (record,) = listed(segment(*reported))
    assert record.stacks == [[FrameRow("/u/train.py", 3, "step")]]
    assert {b.stack for b in record.segments[0].blocks} == {0}


def test_devices_have_lists_of_their_own() -> None:
    found = listed(segment(block(512), device=1), segment(block(512), block(512)))
    assert [(r.device, len(r.segments[0].blocks)) for r in found] == [("cuda:0", 2), ("cuda:1", 1)]


def test_of_too_many_blocks_the_large_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BLOCKS", 2)
    small = segment(*[block(512)] * 2, segment_type="small", address=1)
    (record,) = listed(small, segment(block(MB), address=2))
    assert [s.is_small for s in record.segments] == [False]
    assert record.left_out == 2


def test_a_list_survives_the_recording() -> None:
    (record,) = listed(segment(block(512, frames=FRAMES)), expandable_segments="True")
    assert decode_record(encode_record(record)) == record
    assert len(json.dumps(json.loads(encode_record(record)))) < 400


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("expandable_segments:True", {"expandable_segments": "True"}),
        (
            "max_split_size_mb:128,garbage_collection_threshold:0.8",
            {"max_split_size": str(128 * MB), "garbage_collection_threshold": "0.8"},
        ),
        ("roundup_power2_divisions:[256:1,512:2],backend:native", None),
    ],
)
def test_settings_are_reported_as_in_a_snapshot(
    monkeypatch: pytest.MonkeyPatch, text: str, settings: dict[str, str] | None
) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", text)
    found = allocator_settings()
    assert found == settings if settings is not None else found["backend"] == "native"


class FakeCuda:
    def __init__(self, *, initialized: bool = True, capturing: bool = False) -> None:
        self.is_initialized = lambda: initialized
        self.is_current_stream_capturing = lambda: capturing


def install(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda, *segments: dict[str, Any]) -> None:
    torch = types.ModuleType("torch")
    torch.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(module, "allocator_segments", lambda: list(segments))


def test_blocks_come_with_the_sums_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeCuda(), segment(block(512)))
    sums, blocks = device_memory(with_blocks=True)
    assert isinstance(sums, DeviceSnapshotRecord)
    assert isinstance(blocks, BlockListRecord)
    assert device_memory(with_blocks=False) == [sums]


@pytest.mark.parametrize("cuda", [FakeCuda(initialized=False), FakeCuda(capturing=True)])
def test_nothing_is_queried_of_a_device_that_sleeps_or_captures(
    monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda
) -> None:
    install(monkeypatch, cuda, segment(block(512)))
    assert device_memory(with_blocks=True) == []


def test_segments_that_can_not_be_read_cost_the_training_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, FakeCuda(), {"blocks": 3})
    assert device_memory(with_blocks=True) == []
