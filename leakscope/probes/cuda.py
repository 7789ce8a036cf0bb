"""torch's CUDA caching allocator, and other accelerators through ``torch.accelerator``.

Nothing here wakes CUDA: as long as the program has not used it there are no gauges. ROCm builds
answer to the same names. Under ``cudaMallocAsync`` the statistics are the driver's and there are
no segments to look at.

Allocators of other accelerators answer to the names of CUDA's, of which they leave out what they
don't count. An allocator that the program has not used is never queried, and neither is one of a
torch that can't say whether it was used: MPS before torch 2.13.

A list of blocks costs what torch takes to list its segments, and some microseconds a block. While a
history of allocations is recorded, each block comes with the Python stack that allocated it; there
is no ring of past events and there are no native frames. A history that the program itself records
is never touched: there is but one per process, and a second call would replace it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

from leakscope.model import gauge
from leakscope.model.device import (
    DEFAULT_POOL,
    TORCH_BLOCK_STATES,
    BlockRow,
    BlockState,
    FrameRow,
    SegmentRow,
    whole_pages,
)
from leakscope.model.errors import ours
from leakscope.model.record import BlockListRecord, DeviceSnapshotRecord
from leakscope.probes import GuardedProbe

_ALL_DEVICES_EVERY = 64
_IMMORTAL_INTEGERS = (3, 12)
_INACTIVE = "inactive"
_ALLOCATED = "active_allocated"
_STATISTICS = {
    gauge.DEVICE_ALLOCATED: ("allocated_bytes", "current"),
    gauge.DEVICE_RESERVED: ("reserved_bytes", "current"),
    gauge.DEVICE_PEAK: ("allocated_bytes", "peak"),
    gauge.DEVICE_ACTIVE: ("active_bytes", "current"),
    gauge.DEVICE_REQUESTED: ("requested_bytes", "current"),
    gauge.DEVICE_SEGMENTS: ("segment", "current"),
    gauge.DEVICE_BLOCKS: ("active", "current"),
}
_COUNTERS = {gauge.DEVICE_RETRIES: "num_alloc_retries", gauge.DEVICE_OOMS: "num_ooms"}
MOST_BLOCKS = 20_000
"""Of a device; segments that would exceed it are left out, those with the smallest blocks first."""
DEEPEST = 40
_SETTING = re.compile(r"(\w+):([\w.]+)")
_MIB = 1 << 20

own_history = False
"""Whether a history of allocations is being recorded that is leakscope's own."""


class DevicesInUse:
    """The devices of one kind that the process allocates on.

    A rank uses one of eight devices, so those without memory are only looked at now and then.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._reads = 0
        self._known: set[int] = set()

    def read(
        self,
        statistics: Callable[[int], Mapping[str, Any]],
        *,
        count: Callable[[], int],
        current: int,
    ) -> dict[str, int]:
        """Return the gauges of each device that has or had memory, by ``kind:number.gauge``."""
        if self._reads % _ALL_DEVICES_EVERY == 0:
            self._known.update(range(count()))
        self._reads += 1
        self._known.add(current)
        gauges: dict[str, int] = {}
        for device in sorted(self._known):
            figures = figures_of(statistics(device))
            if figures.get(gauge.DEVICE_PEAK) or figures.get(gauge.DEVICE_RESERVED):
                gauges |= {f"{self._kind}:{device}.{name}": n for name, n in figures.items()}
            else:
                self._known.discard(device)
        return gauges


class CudaProbe(GuardedProbe):
    """What the allocator says of each device that the process uses: live, reserved, peak, retries.

    The peak is never reset: it belongs to the program.
    """

    name = "cuda"

    def __init__(self) -> None:
        self._devices = DevicesInUse("cuda")

    def _measure(self) -> dict[str, int]:
        cuda = awake_cuda()
        if cuda is None:
            return {}
        read = cuda.memory.memory_stats_as_nested_dict
        return self._devices.read(read, count=cuda.device_count, current=cuda.current_device())


class DeviceProbe(GuardedProbe):
    """Device memory used by all processes, and page-locked host memory that torch keeps.

    Read where CUDA is awake and no graph is being captured.
    """

    name = "device"
    slow = True

    def _measure(self) -> dict[str, int]:
        cuda = awake_cuda()
        if cuda is None or cuda.is_current_stream_capturing():
            return {}
        gauges = _pinned(cuda)
        for device in range(cuda.device_count()):
            # Asking about a device without a context would make one.
            if cuda.memory_reserved(device):
                free, total = cuda.mem_get_info(device)
                gauges[f"cuda:{device}.{gauge.DEVICE_USED}"] = total - free
        return gauges


def device_snapshots() -> list[DeviceSnapshotRecord]:
    """Return a summary of the allocator's segments per device; empty without CUDA."""
    try:
        return summarise(_segments_now())
    except ours(Exception):
        return []


def summarise(
    segments: Iterable[Mapping[str, Any]], *, boundary: int = 0
) -> list[DeviceSnapshotRecord]:
    """Return one summary per device of the segments of ``torch.cuda.memory_snapshot``.

    Reserved minus allocated is not fragmentation: segments wholly free are ``cached`` and can be
    returned, inactive bytes in the others are ``stuck``. They are counted from the blocks, since
    torch does not maintain its own counter of them for expandable segments.
    """
    records: dict[int, DeviceSnapshotRecord] = {}
    pools: set[tuple[int, tuple[int, ...]]] = set()
    for segment in segments:
        device = segment.get("device", 0)
        if device not in records:
            records[device] = DeviceSnapshotRecord(boundary=boundary, device=f"cuda:{device}")
        record = records[device]
        _add(record, segment)
        pool = (device, pool_of(segment))
        if pool[1] != DEFAULT_POOL:
            record.private += segment.get("total_size", 0)
            record.private_pools += pool not in pools
            pools.add(pool)
    return [records[device] for device in sorted(records)]


def pool_of(segment: Mapping[str, Any]) -> tuple[int, int]:
    """Return the pool that a segment belongs to; a recording in JSON has lists for pairs."""
    pool = segment.get("segment_pool_id", DEFAULT_POOL)
    pool = pool.get("$tuple", DEFAULT_POOL) if isinstance(pool, Mapping) else pool
    first, second = pool
    return (first, second)


def _add(record: DeviceSnapshotRecord, segment: Mapping[str, Any]) -> None:
    record.segments += 1
    record.reserved += segment.get("total_size", 0)
    record.allocated += segment.get("allocated_size", 0)
    record.active += segment.get("active_size", 0)
    record.requested += segment.get("requested_size", 0)
    is_expandable = bool(segment.get("is_expandable", False))
    record.expandable = record.expandable or is_expandable
    free = pages = 0
    is_used = False
    for block in segment.get("blocks", ()):
        size, state = block.get("size", 0), block.get("state", _ALLOCATED)
        if state == _INACTIVE:
            free += size
            record.largest_hole = max(record.largest_hole, size)
            offset = block.get("address", 0) - segment.get("address", 0)
            pages += whole_pages(offset, size, is_small=segment.get("segment_type") == "small")
            continue
        is_used = True
        record.largest_live = max(record.largest_live, size)
        if state != _ALLOCATED:  # freed by the program, still in use on another stream
            record.pending_free += size
    if is_used:
        record.stuck += free
        record.releasable += pages if is_expandable else 0
        record.pages += 0 if is_expandable else pages
    else:
        record.cached += free


def awake_cuda() -> Any | None:
    """Return ``torch.cuda`` if this process has used it; a forked child of such a one has not."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def figures_of(statistics: Mapping[str, Any]) -> dict[str, int]:
    """Return the gauges in one device's nested statistics; releases differ in what they have."""
    figures = {
        name: statistics[key]["all"][metric]
        for name, (key, metric) in _STATISTICS.items()
        if metric in statistics.get(key, {}).get("all", ())
    }
    figures |= {name: statistics[key] for name, key in _COUNTERS.items() if key in statistics}
    pools = statistics.get("reserved_bytes_by_private_pools")
    if isinstance(pools, Mapping):
        figures[gauge.DEVICE_PRIVATE] = sum(pool["all"]["current"] for pool in pools.values())
    return figures


def _pinned(cuda: Any) -> dict[str, int]:
    read = getattr(cuda.memory, "host_memory_stats_as_nested_dict", None)
    if read is None:
        return {}
    # Owned bytes were called reserved at first, alongside allocated for those in use.
    statistics = read()
    owned = [
        statistics[name]["current"]
        for name in ("allocated_bytes", "reserved_bytes")
        if "current" in statistics.get(name, {})
    ]
    return {gauge.PINNED_HOST: max(owned)} if owned else {}


def allocator_segments() -> list[dict[str, Any]]:
    """Return the block list, without the history of allocations where that can be had.

    Before Python 3.12 the call that leaves the history out takes away references to 0 and False
    that it doesn't own. The other call copies a history that the program records.
    """
    memory = sys.modules["torch.cuda.memory"]
    can_omit = "include_traces" in signature(memory.memory_snapshot).parameters
    if can_omit and sys.version_info >= _IMMORTAL_INTEGERS:
        return list(memory.memory_snapshot(include_traces=False))
    if _records_history() and not own_history:
        return []
    return list(memory._snapshot()["segments"])


def _records_history() -> bool:
    is_recording = getattr(sys.modules["torch"]._C, "_cuda_isHistoryEnabled", None)
    return bool(is_recording and is_recording())


def device_memory(*, with_blocks: bool) -> list[DeviceSnapshotRecord | BlockListRecord]:
    """Return the sums of each device's blocks, and the blocks too where they are wanted.

    Empty where CUDA isn't in use or a graph is being captured; never raises.
    """
    try:
        segments = _segments_now()
        lists = list_blocks(segments, settings=allocator_settings()) if with_blocks else []
        return [*summarise(segments), *lists]
    except ours(Exception):
        return []


def _segments_now() -> list[dict[str, Any]]:
    cuda = awake_cuda()
    is_readable = cuda is not None and not cuda.is_current_stream_capturing()
    return allocator_segments() if is_readable else []


def list_blocks(
    segments: Iterable[Mapping[str, Any]], *, settings: Mapping[str, str], boundary: int = 0
) -> list[BlockListRecord]:
    """Return one list per device of the segments of ``torch.cuda.memory_snapshot``."""
    drafts: dict[int, _SegmentDraft] = {}
    ordered = sorted(segments, key=lambda s: (s.get("segment_type") == "small", s["address"]))
    for segment in ordered:
        device = segment.get("device", 0)
        if device not in drafts:
            drafts[device] = _SegmentDraft(boundary, device, settings)
        drafts[device].add(segment)
    return [drafts[device].record for device in sorted(drafts)]


def allocator_settings() -> dict[str, str]:
    """Return the settings that the allocator was given, by the names of a snapshot of torch's."""
    native = getattr(sys.modules.get("torch"), "_C", None)
    call = getattr(native, "_accelerator_getAllocatorSettings", None)
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
    def __init__(self, boundary: int, device: int, settings: Mapping[str, str]) -> None:
        self.record = BlockListRecord(
            boundary=boundary, device=f"cuda:{device}", settings=dict(settings)
        )
        self._blocks = 0
        self._of_identities: dict[tuple[int, ...], int] = {}
        self._of_frames: dict[tuple[FrameRow, ...], int] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        blocks = record.get("blocks", ())
        if self._blocks + len(blocks) > MOST_BLOCKS:
            self.record.left_out += len(blocks)
            return
        self._blocks += len(blocks)
        self.record.segments.append(
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
        if state == BlockState.FREE:  # it remembers what its last owner requested, and who that was
            return BlockRow(size, 0, BlockState.FREE)
        return BlockRow(size, record.get("requested_size", size), state, self._stack(record))

    def _stack(self, record: Mapping[str, Any]) -> int:
        frames, stacks = record.get("frames"), self.record.stacks
        if not isinstance(frames, list) or not frames:
            return -1
        # torch shares frames among the stacks that they are part of, and identities are compared
        # faster than texts.
        identities = tuple(map(id, frames[:DEEPEST]))
        number = self._of_identities.get(identities)
        if number is None:
            rows = tuple(FrameRow(f["filename"], f["line"], f["name"]) for f in frames[:DEEPEST])
            number = self._of_frames.setdefault(rows, len(stacks))
            if number == len(stacks):
                stacks.append(list(rows))
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
        cuda = awake_cuda()
        if cuda is None or cuda.is_current_stream_capturing():
            return False
        is_recording = getattr(sys.modules["torch"]._C, "_cuda_isHistoryEnabled", None)
        if is_recording is None or is_recording():
            return False
        cuda.memory._record_memory_history("state", context="state", stacks="python")
        self._set_open(True)
        return True

    def _set_open(self, is_open: bool) -> None:
        global own_history
        self.is_open = own_history = is_open

    def close(self) -> None:
        """End, unless the program has begun a recording of its own meanwhile: that goes on."""
        if not self.is_open:
            return
        self._set_open(False)
        cuda = awake_cuda()
        if cuda is None:
            return
        # Ours keeps one event at most; a longer list belongs to a recording that replaced it.
        events = cuda.memory._snapshot().get("device_traces", [])
        if all(len(of_device) <= 1 for of_device in events):
            cuda.memory._record_memory_history(enabled=None)


class AcceleratorProbe(GuardedProbe):
    """What the allocator says of each device of the accelerator that the process uses."""

    name = "accelerator"

    def __init__(self) -> None:
        self._devices: DevicesInUse | None = None

    def _measure(self) -> dict[str, int]:
        torch = _awake_torch()
        if torch is None:
            return {}
        accelerator = torch.accelerator
        if self._devices is None:
            self._devices = DevicesInUse(accelerator.current_accelerator().type)
        return self._devices.read(
            torch._C._accelerator_getDeviceStats,
            count=accelerator.device_count,
            current=accelerator.current_device_index(),
        )


class AcceleratorDeviceProbe(GuardedProbe):
    """Memory of the accelerator's devices that all processes use, and of MPS this one.

    Metal's driver counts what graphs of MPS keep for each shape; torch has no counter of those.
    """

    name = "accelerator_device"
    slow = True

    def _measure(self) -> dict[str, int]:
        torch = _awake_torch()
        if torch is None:
            return {}
        accelerator = torch.accelerator
        kind = accelerator.current_accelerator().type
        gauges = {}
        for device in range(accelerator.device_count()):
            if accelerator.memory_reserved(device):
                free, total = accelerator.get_memory_info(device)
                gauges[f"{kind}:{device}.{gauge.DEVICE_USED}"] = total - free
                if kind == "mps":
                    gauges[f"{kind}:{device}.{gauge.DEVICE_OWN}"] = (
                        torch.mps.driver_allocated_memory()
                    )
        return gauges


def _awake_torch() -> Any | None:
    """Return torch if its accelerator is no CUDA device and this process has used it."""
    torch = sys.modules.get("torch")
    find = getattr(getattr(torch, "accelerator", None), "current_accelerator", None)
    found = None if find is None else find()
    if torch is None or found is None or found.type == "cuda":
        return None
    # A copy of it in a forked child is of no use, and the modules that know say so.
    is_initialized = getattr(getattr(torch, found.type, None), "is_initialized", None)
    if is_initialized is not None and not is_initialized():
        return None
    return torch if torch._C._accelerator_isAllocatorInitialized() else None
