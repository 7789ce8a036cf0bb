"""How much memory this process uses just now, on the host and on each device."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from leakscope.cleanup.accelerator import awake_accelerator, device_levels, why_no_device
from leakscope.cleanup.host import resident
from leakscope.cleanup.peaks import reset_peaks
from leakscope.cleanup.speaking import say
from leakscope.model import gauge
from leakscope.model.record import DeviceSnapshotRecord
from leakscope.model.sizes import human_bytes
from leakscope.probes import device_snapshots
from leakscope.probes.cgroup import CgroupProbe
from leakscope.probes.cuda import DeviceProbe
from leakscope.probes.malloc import MallocProbe
from leakscope.probes.process import SystemProbe, peak_resident


@dataclass(frozen=True)
class HostMemory:
    """The host's memory, in bytes; None where this platform doesn't tell."""

    rss: int
    peak_rss: int | None
    available: int | None
    """What the machine could still give out."""
    cgroup_used: int | None
    cgroup_limit: int | None
    """The limit of the container or batch job; None where there is none."""
    malloc_in_use: int | None
    malloc_free: int | None
    """Freed by the program, kept by the C library: ``malloc_trim(0)`` may return it."""
    pinned: int | None
    """Page-locked memory that torch holds."""

    @property
    def headroom(self) -> int | None:
        """What can still be used before the machine or the control group has no more."""
        left = [] if self.available is None else [self.available]
        if self.cgroup_limit is not None and self.cgroup_used is not None:
            left.append(max(0, self.cgroup_limit - self.cgroup_used))
        return min(left, default=None)

    def __str__(self) -> str:
        parts = [f"host {human_bytes(self.rss)}"]
        if self.peak_rss is not None:
            parts.append(f"peak {human_bytes(self.peak_rss)}")
        if self.headroom is not None:
            parts.append(f"headroom {human_bytes(self.headroom)}")
        if self.cgroup_limit is not None:
            parts.append(f"limit {human_bytes(self.cgroup_limit)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class DeviceMemory:
    """A device's memory, in bytes; None where torch doesn't tell."""

    device: str
    allocated: int
    """In live tensors."""
    reserved: int
    """Held by torch's caching allocator: live, cached and stuck."""
    peak_allocated: int
    free: int | None
    """Free for all processes, as the driver counts."""
    total: int | None
    cached: int | None
    """In wholly free segments: ``empty_cache()`` returns it."""
    stuck: int | None
    """In holes between live blocks: ``empty_cache()`` can't return it."""

    @property
    def outside(self) -> int | None:
        """Used on the device but not by this process's allocator: contexts, other processes."""
        if self.free is None or self.total is None:
            return None
        return max(0, self.total - self.free - self.reserved)

    def __str__(self) -> str:
        parts = [
            f"{self.device} {human_bytes(self.allocated)} allocated",
            f"peak {human_bytes(self.peak_allocated)}",
            f"{human_bytes(self.reserved)} reserved",
        ]
        if self.cached is not None and self.stuck is not None:
            parts.append(f"{human_bytes(self.cached)} cached")
            parts.append(f"{human_bytes(self.stuck)} stuck")
        if self.free is not None and self.total is not None:
            parts.append(f"{human_bytes(self.free)} of {human_bytes(self.total)} free")
        return ", ".join(parts)


@dataclass(frozen=True)
class MemoryStats:
    """The process's memory at one moment; ``remark`` says why there are no devices."""

    host: HostMemory
    devices: tuple[DeviceMemory, ...]
    remark: str | None = None

    def __str__(self) -> str:
        parts = [str(self.host), *map(str, self.devices)]
        return "; ".join(parts) + (f". {self.remark}" if self.remark else "")


def memory_stats() -> MemoryStats:
    """Return the memory of this process, in bytes; never raises and never wakes a device.

    Takes about a millisecond on the host. Cached and stuck memory is counted from the list of all
    blocks, which takes longer the more blocks there are.
    """
    devices = _devices()
    return MemoryStats(_host(), devices, None if devices else why_no_device())


def log_memory_stats(prefix: str = "", logger: logging.Logger | None = None) -> None:
    """Log :func:`memory_stats` in one line, at level INFO; on stderr where nobody listens."""
    text = str(memory_stats())
    say(f"{prefix}: {text}" if prefix else text, logger)


def reset_peak_memory_stats() -> tuple[str, ...]:
    """Let the peaks of the host and of the devices in use begin anew; return which could.

    These are the kernel's mark and torch's own counters: whoever else reads them sees it.
    """
    return reset_peaks()


def _host() -> HostMemory:
    malloc, system, group = MallocProbe().read(), SystemProbe().read(), CgroupProbe().read()
    return HostMemory(
        rss=resident(),
        peak_rss=peak_resident(),
        available=system.get(gauge.SYSTEM_AVAILABLE),
        cgroup_used=group.get(gauge.CGROUP_USED),
        cgroup_limit=group.get(gauge.CGROUP_LIMIT),
        malloc_in_use=malloc.get(gauge.MALLOC_IN_USE),
        malloc_free=malloc.get(gauge.MALLOC_FREE),
        pinned=pinned_memory(),
    )


def pinned_memory() -> int | None:
    """Return page-locked bytes that torch holds; None where it holds none or doesn't tell."""
    return DeviceProbe().read().get(gauge.PINNED_HOST)


def _devices() -> tuple[DeviceMemory, ...]:
    accelerator = awake_accelerator()
    if accelerator is None:
        return ()
    blocks = {record.device: record for record in device_snapshots()}
    devices = []
    for device, level in device_levels().items():
        held: DeviceSnapshotRecord | None = blocks.get(device)
        try:
            # Asking about a device without a context would make one.
            info = accelerator.free_and_total(device) if level.reserved else None
        except Exception:
            info = None
        devices.append(
            DeviceMemory(
                device=device,
                allocated=level.allocated,
                reserved=level.reserved,
                peak_allocated=level.peak_allocated,
                free=info[0] if info else None,
                total=info[1] if info else None,
                cached=held.cached if held else None,
                stuck=held.stuck if held else None,
            )
        )
    return tuple(devices)
