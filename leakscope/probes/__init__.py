"""What is measured at a boundary: one module per source.

Probes read; they never start threads, import torch, create a CUDA context or raise. A source that
is missing (another platform, no GPU, no control group) yields no gauges rather than zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakscope.model.lazily import exports

if TYPE_CHECKING:
    from leakscope.probes.allocation_history import AllocationHistory
    from leakscope.probes.allocation_rate import AllocationCounter, TracingCost
    from leakscope.probes.allocations import AllocationWindow
    from leakscope.probes.base import Probe
    from leakscope.probes.batches import BatchProbe
    from leakscope.probes.blocks import device_memory
    from leakscope.probes.cgroup import memory_limit
    from leakscope.probes.cuda import device_snapshots
    from leakscope.probes.native_allocations import NativeProfile
    from leakscope.probes.outside import OutsideProcess
    from leakscope.probes.shortage import Room, device_room, host_room
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
        "allocation_history": ("AllocationHistory",),
        "allocation_rate": (
            "AllocationCounter",
            "TracingCost",
        ),
        "allocations": ("AllocationWindow",),
        "base": ("Probe",),
        "batches": ("BatchProbe",),
        "blocks": ("device_memory",),
        "cgroup": ("memory_limit",),
        "cuda": ("device_snapshots",),
        "native_allocations": ("NativeProfile",),
        "outside": ("OutsideProcess",),
        "shortage": (
            "Room",
            "device_room",
            "host_room",
        ),
        "sources": ("default_probes", "worker_probes"),
    },
)
