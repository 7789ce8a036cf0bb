"""Accelerators other than CUDA, through ``torch.accelerator``: XPU, MPS and whatever follows them.

Their allocators answer to the names of CUDA's, of which they leave out what they don't count. An
allocator that the program has not used is never asked, and neither is one of a torch that can't say
whether it was used: MPS before torch 2.13.
"""

from __future__ import annotations

import sys
from typing import Any

from leakscope.model import gauge
from leakscope.probes.base import GuardedProbe
from leakscope.probes.cuda import DevicesInUse


class AcceleratorProbe(GuardedProbe):
    """What the allocator says of each device of the accelerator that the process uses."""

    name = "accelerator"

    def __init__(self) -> None:
        self._devices: DevicesInUse | None = None

    def measure(self) -> dict[str, int]:
        """Return the allocator's figures per device."""
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
    """Memory of the accelerator's devices that all processes use."""

    name = "accelerator_device"
    slow = True

    def measure(self) -> dict[str, int]:
        """Return it for each device on which torch's allocator holds memory."""
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
