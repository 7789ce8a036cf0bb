"""Free what nobody uses: the collector's garbage, torch's caches, the C library's free memory.

Each step is measured on its own, for they do different things. Garbage that is *freed* can be used
again by this process; memory that is *returned* goes back to the system or to the driver. None of
them frees what the program still refers to.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from leakscope.cleanup.accelerator import (
    Accelerator,
    DeviceLevel,
    awake_accelerator,
    device_levels,
    why_no_device,
)
from leakscope.cleanup.host import NOISE_BYTES, HostLevel, host_level, trim_function
from leakscope.cleanup.statistics import pinned_memory
from leakscope.model.sizes import human_bytes, plural

COLLECT = "gc.collect()"
EMPTY_CACHE = "empty_cache()"
EMPTY_HOST_CACHE = "empty_host_cache()"
TRIM = "malloc_trim(0)"
LET_GO = "Letting go of the exception"
_FREEING = (COLLECT, LET_GO)


@dataclass(frozen=True)
class Level:
    """What the process and its devices held at one moment."""

    host: HostLevel
    devices: dict[str, DeviceLevel]
    pinned: int | None

    @staticmethod
    def now() -> Level:
        """Return the level just now."""
        devices = device_levels()
        return Level(host_level(), devices, pinned_memory() if devices else None)


@dataclass(frozen=True)
class ClearedStep:
    """What one step changed, in bytes; negative where other threads took more meanwhile."""

    name: str
    seconds: float
    objects: int | None
    """Unreachable objects that the collector found; None for other steps."""
    host_freed: int | None
    """By how much the live part of the C heap fell; None where nobody tells it."""
    host_returned: int
    """By how much resident memory fell."""
    host_trimmed: int = 0
    """By how much the free part of the C heap fell: nobody held that before the step either."""
    device_freed: dict[str, int] = field(default_factory=dict)
    """By how much live tensors fell, per device."""
    device_returned: dict[str, int] = field(default_factory=dict)
    """By how much torch's reserved memory fell, per device."""
    pinned_returned: int = 0

    @property
    def host_bytes(self) -> int:
        """What it did for the host, whichever way it shows; 0 where that is lost in noise."""
        freed = max(0, self.host_freed or 0)
        if self.name in _FREEING:
            # What left the process beside the C heap is freed too: arenas of Python's allocator.
            beside = self.host_returned - max(0, self.host_trimmed) - freed
            best = freed + (beside if beside >= NOISE_BYTES else 0)
        else:
            best = max(freed, self.host_returned)
        return best if best >= NOISE_BYTES else 0

    def __str__(self) -> str:
        frees = self.name in _FREEING
        parts = [f"{human_bytes(self.host_bytes)} of the host's memory"] if self.host_bytes else []
        changes = self.device_freed if frees else self.device_returned
        parts += [f"{human_bytes(size)} on {name}" for name, size in changes.items() if size > 0]
        if self.pinned_returned > 0:
            parts.append(f"{human_bytes(self.pinned_returned)} of page-locked memory")
        told = " and ".join(parts) or "nothing that can be measured"
        found = [plural(self.objects, "object")] if self.objects else []
        took = [] if self.name == LET_GO else [f"{1000 * self.seconds:.1f} ms"]
        aside = f" ({', '.join(found + took)})" if found or took else ""
        return f"{self.name} {'freed' if frees else 'returned'} {told}{aside}"


@dataclass(frozen=True)
class ClearedMemory:
    """What :func:`clear_memory` did, step by step; ``remarks`` say what it left out and why."""

    steps: tuple[ClearedStep, ...]
    seconds: float
    """All of it, the measuring included."""
    remarks: tuple[str, ...] = ()

    @property
    def host_freed(self) -> int:
        """Bytes of the host freed for this process by the collector; 0 if lost in noise."""
        return sum(step.host_bytes for step in self.steps if step.name == COLLECT)

    @property
    def host_returned(self) -> int:
        """Bytes by which resident memory fell in all, 0 if lost in noise."""
        returned = sum(step.host_returned for step in self.steps)
        return returned if returned >= NOISE_BYTES else 0

    @property
    def device_freed(self) -> dict[str, int]:
        """Bytes of live tensors freed per device."""
        return _summed([step.device_freed for step in self.steps])

    @property
    def device_returned(self) -> dict[str, int]:
        """Bytes that went from torch's cache back to the driver, per device."""
        return _summed([step.device_returned for step in self.steps])

    @property
    def objects(self) -> int:
        """Unreachable objects that the collector found."""
        return sum(step.objects or 0 for step in self.steps)

    @property
    def told(self) -> str:
        """What was done, in one sentence."""
        return "; ".join(map(str, self.steps)) + "."

    def __str__(self) -> str:
        return " ".join([self.told, *self.remarks])


def clear_memory(force: bool = False) -> ClearedMemory:
    """Collect garbage and empty torch's caches; return what each step freed and what it took.

    ``force`` also asks glibc to return free memory of the C heap, which can take long in a process
    of many gigabytes. A device that this process has not used is not woken. Never raises.
    """
    begun = time.perf_counter()
    remarks: list[str] = []
    steps: list[ClearedStep] = []
    level = Level.now()
    for name, action in _actions(force, remarks):
        started = time.perf_counter()
        try:
            found = action()
        except Exception as error:
            remarks.append(f"{name} failed: {type(error).__name__}: {error}.")
            continue
        seconds = time.perf_counter() - started
        after = Level.now()
        objects = found if name == COLLECT and isinstance(found, int) else None
        steps.append(difference(name, level, after, seconds, objects))
        level = after
    return ClearedMemory(tuple(steps), time.perf_counter() - begun, tuple(remarks))


def difference(
    name: str, before: Level, after: Level, seconds: float = 0.0, objects: int | None = None
) -> ClearedStep:
    """Return what changed between two levels."""
    in_use = (before.host.in_use, after.host.in_use)
    both = [device for device in before.devices if device in after.devices]
    was, now = before.devices, after.devices
    return ClearedStep(
        name=name,
        seconds=seconds,
        objects=objects,
        host_freed=None if in_use[0] is None or in_use[1] is None else in_use[0] - in_use[1],
        host_returned=before.host.resident - after.host.resident,
        host_trimmed=(before.host.free or 0) - (after.host.free or 0),
        device_freed={device: was[device].allocated - now[device].allocated for device in both},
        device_returned={device: was[device].reserved - now[device].reserved for device in both},
        pinned_returned=(before.pinned or 0) - (after.pinned or 0),
    )


def _actions(force: bool, remarks: list[str]) -> list[tuple[str, Callable[[], object]]]:
    actions: list[tuple[str, Callable[[], object]]] = [(COLLECT, gc.collect)]
    accelerator = awake_accelerator()
    if accelerator is None:
        remarks.append(why_no_device())
    elif _may_empty(accelerator):
        actions.append((EMPTY_CACHE, accelerator.empty_cache))
        empty_host_cache = accelerator.empty_host_cache()
        if empty_host_cache:
            actions.append((EMPTY_HOST_CACHE, empty_host_cache))
    else:
        remarks.append("The caches were left alone: a graph is being captured.")
    if force:
        trim = trim_function()
        if trim:
            actions.append((TRIM, trim))
        else:
            remarks.append("There is no malloc_trim: the C library is not glibc.")
    return actions


def _may_empty(accelerator: Accelerator) -> bool:
    try:
        return not accelerator.is_capturing()
    except Exception:
        return False


def _summed(changes: list[dict[str, int]]) -> dict[str, int]:
    devices = dict.fromkeys(device for change in changes for device in change)
    return {device: sum(change.get(device, 0) for change in changes) for device in devices}
