"""What memory there was when it ran out: of the host under each limit, or of a device.

Reads what is cheap and needs no memory to speak of; never synchronises a device.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from leakscope.model.interrupts import ours
from leakscope.model.record import DeviceSnapshotRecord
from leakscope.probes.cgroup import limiting_group
from leakscope.probes.cuda import allocator_segments, awake_cuda, summarise

SMALL_REQUEST = 1 << 20
"""Up to this size torch serves a request from small segments, beyond from large ones."""


@dataclass(frozen=True)
class Room:
    """Memory in use and what is left, in bytes; None where it can't be read."""

    allocated: int | None = None
    reserved: int | None = None
    free: int | None = None
    limits: dict[str, int] = field(default_factory=dict)
    largest_hole: int | None = None
    snapshot: DeviceSnapshotRecord | None = None


def host_room() -> Room:
    """Return resident memory, address space, and the least that any limit leaves."""
    resident, space = _resident_and_space()
    limits, left = {}, []
    memory = psutil.virtual_memory()
    limits["machine"] = int(memory.total)
    left.append(int(memory.available))
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft != resource.RLIM_INFINITY and space is not None:
        limits["address_space"] = soft
        left.append(soft - space)
    group = limiting_group()
    limit = None if group is None else group.limit()
    if group is not None and limit is not None:
        limits["cgroup"] = limit
        left.append(limit - group.used())
    return Room(resident, space, max(0, min(left)), limits)


def device_room(
    device: int, requested: int | None, *, total: int | None = None, free: int | None = None
) -> Room:
    """Return what torch's allocator holds of a device; empty where CUDA isn't in use.

    ``total`` and ``free`` are what the allocator itself has said of the device, which nothing can
    be asked for without synchronising.
    """
    cuda = awake_cuda()
    if cuda is None:
        return Room(free=free)
    told = [] if cuda.is_current_stream_capturing() else allocator_segments()
    segments = [s for s in told if s.get("device", 0) == device]
    snapshot = next(iter(summarise(segments)), None)
    return Room(
        allocated=int(cuda.memory_allocated(device)),
        reserved=int(cuda.memory_reserved(device)),
        free=free,
        limits={} if total is None else {"device": total},
        largest_hole=_largest_hole(segments, requested) if segments else None,
        snapshot=snapshot,
    )


def _largest_hole(segments: Iterable[Mapping[str, Any]], requested: int | None) -> int:
    """Return the largest free block of the kind of segment that would have served the request.

    Of any stream, which is generous: a hole of another stream can't be taken.
    """
    kind = "small" if requested is not None and requested <= SMALL_REQUEST else "large"
    return max(
        (
            int(block.get("size", 0))
            for segment in segments
            if segment.get("segment_type", kind) == kind
            and tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0)
            for block in segment.get("blocks", ())
            if block.get("state") == "inactive"
        ),
        default=0,
    )


def _resident_and_space() -> tuple[int | None, int | None]:
    try:
        pages = Path("/proc/self/statm").read_bytes().split()
        return int(pages[1]) * resource.getpagesize(), int(pages[0]) * resource.getpagesize()
    except ours(OSError, ValueError, IndexError):
        return int(psutil.Process().memory_info().rss), None
