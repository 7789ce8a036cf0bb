"""How much memory this process uses now, on the host and on each device, and its live tensors.

Tensors are seen as far as they have a Python object, by type and shape; a storage shared by several
counts once, under the tensor that covers most of it. Only figures are kept, never a tensor.
Messages of this package go to the program's log where it has one, else to stderr.
"""

from __future__ import annotations

import gc
import logging
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from leakscope.cleanup.levels import awake_accelerator, device_levels, resident, why_no_device
from leakscope.model import gauge
from leakscope.model.record import DeviceSnapshotRecord
from leakscope.model.text import human_bytes
from leakscope.probes.cgroup import CgroupProbe
from leakscope.probes.cuda import DeviceProbe, device_snapshots
from leakscope.probes.malloc import MallocProbe
from leakscope.probes.process import SystemProbe, peak_resident


@dataclass(frozen=True)
class HostMemory:
    """The host's memory, in bytes; None where this platform doesn't report it."""

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
        sizes = (("peak", self.peak_rss), ("headroom", self.headroom), ("limit", self.cgroup_limit))
        parts = [f"host {human_bytes(self.rss)}"]
        parts += [f"{name} {human_bytes(size)}" for name, size in sizes if size is not None]
        return ", ".join(parts)


@dataclass(frozen=True)
class DeviceMemory:
    """A device's memory, in bytes; None where torch doesn't report it."""

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
    log_text(f"{prefix}: {text}" if prefix else text, logger)


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
    """Return page-locked bytes that torch holds; None where it reports none."""
    return DeviceProbe().read().get(gauge.PINNED_HOST)


def _devices() -> tuple[DeviceMemory, ...]:
    accelerator = awake_accelerator()
    if accelerator is None:
        return ()
    blocks = {record.device: record for record in device_snapshots()}
    devices = []
    for device, level in device_levels().items():
        content: DeviceSnapshotRecord | None = blocks.get(device)
        info: tuple[int | None, int | None] = None, None
        with suppress(Exception):
            if level.reserved:  # asking about a device without a context would make one
                info = accelerator.free_and_total(device)
        parts = (content.cached, content.stuck) if content else (None, None)
        own = (level.allocated, level.reserved, level.peak_allocated)
        devices.append(DeviceMemory(device, *own, *info, *parts))
    return tuple(devices)


_MOST_LINES = 5
_HOST = ("host", "cpu")


@dataclass(frozen=True)
class TensorGroup:
    """Live tensors of one type and shape on one device."""

    device: str
    label: str
    """Type and shape: ``float32[64, 256]``."""
    count: int
    bytes: int


@dataclass(frozen=True)
class LiveTensors:
    """All groups, biggest first, and per device the bytes that no Python object stands for."""

    groups: tuple[TensorGroup, ...] = ()
    unseen: tuple[tuple[str, int], ...] = ()

    def lines(self, place: str) -> list[str]:
        """Return the biggest groups of a device, or of all devices, as lines of text."""
        device = "cpu" if place in _HOST else place
        here = [group for group in self.groups if device in (group.device, "device")]
        lines = [
            f"{human_bytes(group.bytes)} in {group.count} × {group.label} on {group.device}"
            for group in here[:_MOST_LINES]
        ]
        if len(here) > _MOST_LINES:
            rest = here[_MOST_LINES:]
            lines.append(
                f"{human_bytes(sum(group.bytes for group in rest))} in "
                f"{sum(group.count for group in rest)} more tensors"
            )
        lines += [
            f"{human_bytes(size)} on {name} held by autograd or native code alone"
            for name, size in self.unseen
            if device in (name, "device")
        ]
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines("device")) or "No live tensors."


def live_tensors() -> LiveTensors:
    """Return what is live; empty without torch. Looks at all objects, and never raises."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return LiveTensors()
    try:
        return _grouped(_storages(torch))
    except Exception:
        return LiveTensors()


def _storages(torch: Any) -> dict[tuple[str, int], tuple[int, int, str]]:
    """Per device and address of a storage: its bytes, the most that a tensor covers, which one."""
    storages: dict[tuple[str, int], tuple[int, int, str]] = {}
    with torch._C.DisableTorchFunctionSubclass():
        for thing in gc.get_objects():
            # isinstance() would ask the object itself, which may run code of the program.
            kind = type(thing)
            if not issubclass(kind, torch.Tensor) or hasattr(kind, "__tensor_flatten__"):
                continue  # a wrapper only claims the memory of the tensors within
            try:
                storage = thing.untyped_storage()
                # The address of the data would make a lazy copy a real one.
                key = (str(storage.device), storage._cdata)
                size, covered = storage.nbytes(), thing.numel() * thing.element_size()
                label = f"{str(thing.dtype).removeprefix('torch.')}{list(thing.shape)}"
            except Exception:
                continue  # without a storage: sparse, lazy
            if size and key[0] != "meta" and covered > storages.get(key, (0, -1, ""))[1]:
                storages[key] = (size, covered, label)
    return storages


def _grouped(storages: dict[tuple[str, int], tuple[int, int, str]]) -> LiveTensors:
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    seen: dict[str, int] = {}
    for (device, _), (size, _, label) in storages.items():
        count, total = sums.get((device, label), (0, 0))
        sums[device, label] = (count + 1, total + size)
        seen[device] = seen.get(device, 0) + size
    groups = [TensorGroup(*key, *value) for key, value in sums.items()]
    groups.sort(key=lambda group: -group.bytes)
    unseen = [
        (device, level.allocated - seen.get(device, 0))
        for device, level in device_levels().items()
        if level.allocated - seen.get(device, 0) > level.allocated // 100
    ]
    return LiveTensors(tuple(groups), tuple(unseen))


LOGGERS = ("leakscope", "leakscope.cleanup")


def silent_logger() -> logging.Logger:
    """Return a logger without a listener."""
    logger = logging.getLogger("leakscope.nobody")
    logger.disabled = True
    return logger


def log_text(text: str, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
    """Log a text; never raises.

    Without a logger of the caller's it goes to ``leakscope.cleanup``. Where nobody listens there,
    it is written to stderr rather than lost, unless a level was set on ``leakscope`` or
    ``leakscope.cleanup``: that is how a program silences it.
    """
    try:
        listener = logger or logging.getLogger(LOGGERS[-1])
        if logger is not None or (listener.hasHandlers() and listener.isEnabledFor(level)):
            listener.log(level, "%s", text)
        elif all(logging.getLogger(name).level == logging.NOTSET for name in LOGGERS):
            sys.stderr.write(f"leakscope: {text}\n")
            sys.stderr.flush()
    except Exception:
        pass
