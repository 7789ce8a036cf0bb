"""The accelerator that this process uses, through torch: statistics and caches.

Nothing here imports torch or wakes a device. As long as the program has not used one there is no
accelerator, and in a forked child of a program that has, there is none either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_KINDS = ("cuda", "xpu")
"""Device modules of torch that can say whether they are in use. ROCm answers as ``cuda``."""

NO_TORCH = "No GPU figures: this process has not imported torch."
NOT_USED = "No GPU figures: torch has not used a GPU in this process."


@dataclass(frozen=True)
class DeviceLevel:
    """What torch's caching allocator holds on one device, in bytes."""

    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int


@dataclass(frozen=True)
class Accelerator:
    """Devices of one kind that are in use: ``cuda`` or ``xpu``."""

    kind: str
    torch: Any
    module: Any

    def levels(self) -> dict[str, DeviceLevel]:
        """Return the allocator's figures of each device that holds or held memory."""
        levels = {}
        for index in range(self.module.device_count()):
            level = _level(self._function("memory_stats")(index))
            if level.reserved or level.peak_reserved:
                levels[f"{self.kind}:{index}"] = level
        return levels

    def free_and_total(self, device: str) -> tuple[int, int]:
        """Return a device's bytes free for all processes, and all that it has."""
        index = int(device.rpartition(":")[2])
        if self._generic("get_memory_info") is not None:
            free, total = self.torch.accelerator.get_memory_info(index)
        else:
            free, total = self.module.mem_get_info(index)
        return int(free), int(total)

    def empty_cache(self) -> None:
        """Give wholly free segments of all devices back to the driver."""
        self._function("empty_cache")()

    def empty_host_cache(self) -> Callable[[], object] | None:
        """Return the function that unpins unused page-locked memory; None where torch has none."""
        generic = self._generic("empty_host_cache")
        older: Callable[[], object] | None = getattr(self.torch._C, "_host_emptyCache", None)
        return generic or (older if self.kind == "cuda" else None)

    def reset_peaks(self, device: str) -> None:
        """Set torch's own peak counters of a device to the level now."""
        self._function("reset_peak_memory_stats")(int(device.rpartition(":")[2]))

    def is_capturing(self) -> bool:
        """Return whether a graph is being captured, during which no cache may be emptied."""
        asks = getattr(self.module, "is_current_stream_capturing", None)
        return bool(asks and asks())

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = self._generic(name) or getattr(self.module, name)
        return function

    def _generic(self, name: str) -> Callable[..., Any] | None:
        """The function of ``torch.accelerator``, where that is there and means these devices."""
        accelerator = getattr(self.torch, "accelerator", None)
        function: Callable[..., Any] | None = getattr(accelerator, name, None)
        if accelerator is None or function is None:
            return None
        current = accelerator.current_accelerator()
        return function if current is not None and current.type == self.kind else None


def awake_accelerator() -> Accelerator | None:
    """Return the accelerator that this process has used; None where it has used none."""
    try:
        torch = sys.modules.get("torch")
        for kind in _KINDS:
            module = getattr(torch, kind, None)
            if module is not None and module.is_initialized():
                return Accelerator(kind, torch, module)
    except Exception:
        pass
    return None


def device_levels() -> dict[str, DeviceLevel]:
    """Return the figures of all devices in use; empty where there are none. Never raises."""
    accelerator = awake_accelerator()
    try:
        return accelerator.levels() if accelerator else {}
    except Exception:
        return {}


def why_no_device() -> str:
    """Return the sentence that says why there are no figures of a device."""
    return NOT_USED if "torch" in sys.modules else NO_TORCH


def _level(statistics: dict[str, int]) -> DeviceLevel:
    return DeviceLevel(
        allocated=statistics.get("allocated_bytes.all.current", 0),
        reserved=statistics.get("reserved_bytes.all.current", 0),
        peak_allocated=statistics.get("allocated_bytes.all.peak", 0),
        peak_reserved=statistics.get("reserved_bytes.all.peak", 0),
    )
