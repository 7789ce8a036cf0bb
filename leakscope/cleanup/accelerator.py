"""The accelerator that this process uses, through torch: statistics and caches.

Nothing here imports torch or wakes a device. As long as the program has not used one there is no
accelerator, and in a forked child of a program that has, there is none either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leakscope.model import gauge
from leakscope.probes.accelerator import AcceleratorProbe
from leakscope.probes.cuda import CudaProbe, awake_cuda

NO_TORCH = "No GPU figures: this process has not imported torch."
NOT_USED = "No GPU figures: torch has not used a GPU in this process."


@dataclass(frozen=True)
class DeviceLevel:
    """What torch's caching allocator holds on one device, in bytes."""

    allocated: int
    reserved: int
    peak_allocated: int


@dataclass(frozen=True)
class Accelerator:
    """Devices of one kind that are in use: ``cuda`` (ROCm too), ``xpu``, …"""

    kind: str
    torch: Any
    module: Any

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
        torch, cuda = sys.modules.get("torch"), awake_cuda()
        if cuda is not None:
            return Accelerator("cuda", torch, cuda)
        for device in _by_device(AcceleratorProbe().read()):
            kind = device.partition(":")[0]
            return Accelerator(kind, torch, getattr(torch, kind))
    except Exception:
        pass
    return None


def device_levels() -> dict[str, DeviceLevel]:
    """Return the figures of all devices that hold or held memory; never raises."""
    devices = _by_device(CudaProbe().read() or AcceleratorProbe().read())
    return {
        device: DeviceLevel(
            allocated=figures.get(gauge.DEVICE_ALLOCATED, 0),
            reserved=figures.get(gauge.DEVICE_RESERVED, 0),
            peak_allocated=figures.get(gauge.DEVICE_PEAK, 0),
        )
        for device, figures in devices.items()
    }


def why_no_device() -> str:
    """Return the sentence that says why there are no figures of a device."""
    return NOT_USED if sys.modules.get("torch") is not None else NO_TORCH


def _by_device(gauges: dict[str, int]) -> dict[str, dict[str, int]]:
    devices: dict[str, dict[str, int]] = {}
    for name, value in gauges.items():
        device, _, figure = name.partition(".")
        devices.setdefault(device, {})[figure] = value
    return devices
