"""torch's CUDA caching allocator: what it holds, its blocks, and the device around it.

Nothing here wakes CUDA: as long as the program has not used it there are no gauges. ROCm builds
answer to the same names. Under ``cudaMallocAsync`` the statistics are the driver's and there are
no segments to look at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

from leakscope.model import gauge
from leakscope.model.record import DeviceSnapshotRecord
from leakscope.probes.base import GuardedProbe

_ALL_DEVICES_EVERY = 64
_IMMORTAL_INTEGERS = (3, 12)
_INACTIVE = "inactive"
_ALLOCATED = "active_allocated"


class CudaProbe(GuardedProbe):
    """Allocated, reserved and peak bytes of each device that the process uses.

    A rank uses one of eight devices, so those without memory are only looked at now and then. The
    peak is never reset: it belongs to the program.
    """

    name = "cuda"

    def __init__(self) -> None:
        self._reads = 0
        self._in_use: set[int] = set()

    def measure(self) -> dict[str, int]:
        """Return the allocator's figures per device."""
        cuda = _awake_cuda()
        if cuda is None:
            return {}
        if self._reads % _ALL_DEVICES_EVERY == 0:
            self._in_use.update(range(cuda.device_count()))
        self._reads += 1
        self._in_use.add(cuda.current_device())
        gauges: dict[str, int] = {}
        for device in sorted(self._in_use):
            figures = _figures(cuda.memory.memory_stats_as_nested_dict(device))
            if figures[gauge.DEVICE_PEAK] or figures[gauge.DEVICE_RESERVED]:
                gauges |= {f"cuda:{device}.{name}": value for name, value in figures.items()}
            else:
                self._in_use.discard(device)
        return gauges


class DeviceProbe(GuardedProbe):
    """Device memory used by all processes, and page-locked host memory that torch keeps."""

    name = "device"
    slow = True

    def measure(self) -> dict[str, int]:
        """Return them where CUDA is awake and no graph is being captured."""
        cuda = _awake_cuda()
        if cuda is None or cuda.is_current_stream_capturing():
            return {}
        gauges = _pinned(cuda)
        for device in range(cuda.device_count()):
            # Asking about a device without a context would make one.
            if cuda.memory_reserved(device):
                free, total = cuda.mem_get_info(device)
                gauges[f"cuda:{device}.{gauge.DEVICE_USED}"] = total - free
        return gauges


def device_snapshots(boundary: int = 0) -> list[DeviceSnapshotRecord]:
    """Return a summary of the allocator's segments per device; empty without CUDA."""
    try:
        cuda = _awake_cuda()
        if cuda is None or cuda.is_current_stream_capturing():
            return []
        return summarise(_segments(), boundary=boundary)
    except Exception:
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
    for segment in segments:
        device = segment.get("device", 0)
        record = records.get(device)
        if record is None:
            record = DeviceSnapshotRecord(boundary=boundary, device=f"cuda:{device}")
            records[device] = record
        _add(record, segment)
    return [records[device] for device in sorted(records)]


def _add(record: DeviceSnapshotRecord, segment: Mapping[str, Any]) -> None:
    record.segments += 1
    record.reserved += segment.get("total_size", 0)
    record.allocated += segment.get("allocated_size", 0)
    record.active += segment.get("active_size", 0)
    record.requested += segment.get("requested_size", 0)
    free = 0
    is_used = False
    for block in segment.get("blocks", ()):
        size, state = block.get("size", 0), block.get("state", _ALLOCATED)
        if state == _INACTIVE:
            free += size
            record.largest_hole = max(record.largest_hole, size)
            continue
        is_used = True
        if state != _ALLOCATED:  # freed by the program, still in use on another stream
            record.pending_free += size
    if is_used:
        record.stuck += free
    else:
        record.cached += free


def _awake_cuda() -> Any | None:
    """``torch.cuda`` if this process has used it (a forked child of such a process has not)."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return cuda


def _figures(statistics: Mapping[str, Any]) -> dict[str, int]:
    allocated = statistics["allocated_bytes"]["all"]
    return {
        gauge.DEVICE_ALLOCATED: allocated["current"],
        gauge.DEVICE_RESERVED: statistics["reserved_bytes"]["all"]["current"],
        gauge.DEVICE_PEAK: allocated["peak"],
    }


def _pinned(cuda: Any) -> dict[str, int]:
    read = getattr(cuda.memory, "host_memory_stats_as_nested_dict", None)
    if read is None:
        return {}
    # Owned bytes were called reserved at first, beside allocated for those in use.
    statistics = read()
    owned = [
        statistics[name]["current"]
        for name in ("allocated_bytes", "reserved_bytes")
        if "current" in statistics.get(name, {})
    ]
    return {gauge.PINNED_HOST: max(owned)} if owned else {}


def _segments() -> list[dict[str, Any]]:
    """The block list, without the history of allocations where that can be had.

    Before Python 3.12 the call that leaves the history out takes away references to 0 and False
    that it doesn't own. The other call is harmless, but copies a history that the program records.
    """
    memory = sys.modules["torch.cuda.memory"]
    can_omit = "include_traces" in signature(memory.memory_snapshot).parameters
    if can_omit and sys.version_info >= _IMMORTAL_INTEGERS:
        segments: list[dict[str, Any]] = memory.memory_snapshot(include_traces=False)
    elif _records_history():
        segments = []
    else:
        segments = memory._snapshot()["segments"]
    return segments


def _records_history() -> bool:
    native = sys.modules["torch"]._C
    asks = getattr(native, "_cuda_isHistoryEnabled", None)
    return bool(asks and asks())
