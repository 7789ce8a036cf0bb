"""A device's blocks one by one, small enough to be recorded, and who allocated them during a
window.

Costs what torch takes to list its segments, and some microseconds a block. A list of stacks comes
along where a history of allocations is being recorded.

Recorded is the Python stack of each allocation, and kept with the block while it lives; no ring of
past events, no native frames. A recording that the program itself has started is never touched:
there is but one per process, and a second call would replace it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from leakscope.model.device import TORCH_BLOCK_STATES, BlockRow, BlockState, FrameRow, SegmentRow
from leakscope.model.errors import ours
from leakscope.model.record import BlockListRecord, DeviceSnapshotRecord
from leakscope.probes import cuda as allocator
from leakscope.probes.cuda import allocator_segments, awake_cuda, pool_of, summarise

MOST_BLOCKS = 20_000
"""Of a device; segments that would exceed it are left out, those with the smallest blocks first."""
DEEPEST = 40
_SETTING = re.compile(r"(\w+):([\w.]+)")
_MIB = 1 << 20


def device_memory(*, with_blocks: bool) -> list[DeviceSnapshotRecord | BlockListRecord]:
    """Return the sums of each device's blocks, and the blocks too where they are wanted.

    Empty where CUDA isn't in use or a graph is being captured; never raises.
    """
    try:
        cuda = awake_cuda()
        if cuda is None or cuda.is_current_stream_capturing():
            return []
        segments = allocator_segments()
        lists = list_blocks(segments, settings=allocator_settings()) if with_blocks else []
        return [*summarise(segments), *lists]
    except ours(Exception):
        return []


def list_blocks(
    segments: Iterable[Mapping[str, Any]], *, settings: Mapping[str, str], boundary: int = 0
) -> list[BlockListRecord]:
    """Return one list per device of the segments of ``torch.cuda.memory_snapshot``."""
    drafts: dict[int, _SegmentDraft] = {}
    ordered = sorted(segments, key=lambda s: (s.get("segment_type") == "small", s["address"]))
    for segment in ordered:
        drafts.setdefault(segment.get("device", 0), _SegmentDraft()).add(segment)
    return [
        BlockListRecord(
            boundary=boundary,
            device=f"cuda:{device}",
            segments=draft.segments,
            stacks=draft.stacks,
            settings=dict(settings),
            left_out=draft.left_out,
        )
        for device, draft in sorted(drafts.items())
    ]


def allocator_settings() -> dict[str, str]:
    """Return the settings that the allocator was given, by the names of a snapshot of torch's."""
    native = getattr(sys.modules.get("torch"), "_C", None)
    call = getattr(native, "_accelerator_getAllocatorSettings", None)
    settings = ""
    try:
        settings = str(call()) if call is not None else ""
    except ours(Exception):
        settings = ""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    settings = settings or next((os.environ[name] for name in names if os.environ.get(name)), "")
    found = dict(_SETTING.findall(settings))
    size = found.pop("max_split_size_mb", "")
    return found | ({"max_split_size": str(int(size) * _MIB)} if size.isdigit() else {})


class _SegmentDraft:
    """The list of one device while it is made; equal stacks are kept once."""

    def __init__(self) -> None:
        self.segments: list[SegmentRow] = []
        self.stacks: list[list[FrameRow]] = []
        self.left_out = 0
        self._blocks = 0
        self._of_identities: dict[tuple[int, ...], int] = {}
        self._of_frames: dict[tuple[FrameRow, ...], int] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        blocks = record.get("blocks", ())
        if self._blocks + len(blocks) > MOST_BLOCKS:
            self.left_out += len(blocks)
            return
        self._blocks += len(blocks)
        self.segments.append(
            SegmentRow(
                record["address"],
                record.get("total_size", 0),
                record.get("stream", 0),
                pool_of(record),
                record.get("segment_type") == "small",
                bool(record.get("is_expandable", False)),
                [self._block(block) for block in blocks],
            )
        )

    def _block(self, record: Mapping[str, Any]) -> BlockRow:
        size = record.get("size", 0)
        state = TORCH_BLOCK_STATES.get(record.get("state", ""), BlockState.PENDING)
        if state == BlockState.FREE:  # it remembers what its last owner asked for, and who that was
            return BlockRow(size, 0, BlockState.FREE)
        return BlockRow(size, record.get("requested_size", size), state, self._stack(record))

    def _stack(self, record: Mapping[str, Any]) -> int:
        frames = record.get("frames")
        if not isinstance(frames, list) or not frames:
            return -1
        # torch shares frames among the stacks that they are part of, and identities are compared
        # faster than texts.
        identities = tuple(map(id, frames[:DEEPEST]))
        number = self._of_identities.get(identities)
        if number is None:
            rows = tuple(FrameRow(f["filename"], f["line"], f["name"]) for f in frames[:DEEPEST])
            number = self._of_frames.setdefault(rows, len(self.stacks))
            if number == len(self.stacks):
                self.stacks.append(list(rows))
            self._of_identities[identities] = number
        return number


class AllocationHistory:
    """Records allocation stacks from :meth:`open` to :meth:`close`."""

    def __init__(self) -> None:
        self.is_open = False

    def open(self) -> bool:
        """Begin; return False where CUDA isn't in use or the program records by itself.

        A torch that can't say whether it records (before 2.1) is left alone too.
        """
        cuda = allocator.awake_cuda()
        is_recording = (
            getattr(sys.modules["torch"]._C, "_cuda_isHistoryEnabled", None) if cuda else None
        )
        if (
            cuda is None
            or is_recording is None
            or is_recording()
            or cuda.is_current_stream_capturing()
        ):
            return False
        cuda.memory._record_memory_history("state", context="state", stacks="python")
        self.is_open = allocator.own_history = True
        return True

    def close(self) -> None:
        """End, unless the program has begun a recording of its own meanwhile: that goes on."""
        if not self.is_open:
            return
        self.is_open = allocator.own_history = False
        cuda = allocator.awake_cuda()
        if cuda is None:
            return
        # Ours keeps one event at most; a longer list belongs to a recording that replaced it.
        events = cuda.memory._snapshot().get("device_traces", [])
        if all(len(of_device) <= 1 for of_device in events):
            cuda.memory._record_memory_history(enabled=None)
