"""What is measured at a boundary: one module per source.

Probes read; they never start threads, import torch, create a CUDA context or raise. A source that
is missing (another platform, no GPU, no control group) yields no gauges rather than zeros.
"""

from __future__ import annotations

from leakscope.probes.accelerator import AcceleratorDeviceProbe, AcceleratorProbe
from leakscope.probes.allocation_history import AllocationHistory
from leakscope.probes.allocation_rate import AllocationCounter, TracingCost
from leakscope.probes.allocations import AllocationWindow
from leakscope.probes.base import Probe
from leakscope.probes.batches import BatchProbe
from leakscope.probes.blocks import device_memory
from leakscope.probes.cgroup import CgroupProbe, memory_limit
from leakscope.probes.children import ChildrenProbe
from leakscope.probes.cuda import CudaProbe, DeviceProbe, device_snapshots
from leakscope.probes.environment import environment
from leakscope.probes.figures import FiguresProbe
from leakscope.probes.garbage import GarbageProbe
from leakscope.probes.malloc import MallocProbe
from leakscope.probes.outside import OutsideProcess
from leakscope.probes.process import MappingProbe, ProcessProbe, SystemProbe
from leakscope.probes.shortage import Room, device_room, host_room

__all__ = [
    "AllocationCounter",
    "AllocationHistory",
    "AllocationWindow",
    "BatchProbe",
    "OutsideProcess",
    "Probe",
    "Room",
    "TracingCost",
    "default_probes",
    "device_memory",
    "device_room",
    "device_snapshots",
    "environment",
    "host_room",
    "memory_limit",
    "worker_probes",
]


def default_probes() -> list[Probe]:
    """Return one probe of every kind, those for every boundary first."""
    return [
        ProcessProbe(),
        GarbageProbe(),
        FiguresProbe(),
        CudaProbe(),
        AcceleratorProbe(),
        SystemProbe(),
        MallocProbe(),
        CgroupProbe(),
        MappingProbe(),
        ChildrenProbe(),
        DeviceProbe(),
        AcceleratorDeviceProbe(),
    ]


def worker_probes(batches: BatchProbe) -> list[Probe]:
    """Return the probes for a worker of a DataLoader: none that asks for a device."""
    return [ProcessProbe(), GarbageProbe(), batches, SystemProbe(), MallocProbe(), MappingProbe()]
