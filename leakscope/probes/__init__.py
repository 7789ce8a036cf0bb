"""What is measured at a boundary: one module per source.

Probes read; they never start threads, import torch, create a CUDA context or raise. A source that
is missing (another platform, no GPU, no control group) yields no gauges rather than zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakscope.model.lazy_exports import exports

if TYPE_CHECKING:
    from leakscope.probes.allocations import AllocationCounter, AllocationWindow, TracingCost
    from leakscope.probes.base import Probe
    from leakscope.probes.blocks import AllocationHistory, device_memory
    from leakscope.probes.cgroup import memory_limit
    from leakscope.probes.cuda import device_snapshots
    from leakscope.probes.interpreter import BatchProbe
    from leakscope.probes.native_allocations import NativeProfile
    from leakscope.probes.out_of_memory import Room, device_room, host_room
    from leakscope.probes.process import OutsideProcess
    from leakscope.probes.sources import default_probes, worker_probes

__all__ = [
    "AllocationCounter",
    "AllocationHistory",
    "AllocationWindow",
    "BatchProbe",
    "NativeProfile",
    "OutsideProcess",
    "Probe",
    "Room",
    "TracingCost",
    "default_probes",
    "device_memory",
    "device_room",
    "device_snapshots",
    "host_room",
    "memory_limit",
    "worker_probes",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "allocations": (
            "AllocationCounter",
            "AllocationWindow",
            "TracingCost",
        ),
        "base": ("Probe",),
        "blocks": (
            "AllocationHistory",
            "device_memory",
        ),
        "cgroup": ("memory_limit",),
        "cuda": ("device_snapshots",),
        "interpreter": ("BatchProbe",),
        "native_allocations": ("NativeProfile",),
        "out_of_memory": (
            "Room",
            "device_room",
            "host_room",
        ),
        "process": ("OutsideProcess",),
        "sources": (
            "default_probes",
            "worker_probes",
        ),
    },
)
