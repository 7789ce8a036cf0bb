"""The probes that a process is measured with."""

from __future__ import annotations

from leakscope.probes import Probe
from leakscope.probes.cgroup import CgroupProbe
from leakscope.probes.cuda import AcceleratorDeviceProbe, AcceleratorProbe, CudaProbe, DeviceProbe
from leakscope.probes.interpreter import BatchProbe, FiguresProbe, GarbageProbe, RegistriesProbe
from leakscope.probes.malloc import MallocProbe
from leakscope.probes.mappings import MappingKindsProbe
from leakscope.probes.process import (
    ChildCountProbe,
    ChildrenProbe,
    MappingProbe,
    ProcessProbe,
    SystemProbe,
)


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
        RegistriesProbe(),
        MappingProbe(),
        MappingKindsProbe(),
        ChildCountProbe(),
        ChildrenProbe(),
        DeviceProbe(),
        AcceleratorDeviceProbe(),
    ]


def worker_probes(batches: BatchProbe) -> list[Probe]:
    """Return the probes for a worker of a DataLoader: none that asks for a device."""
    return [ProcessProbe(), GarbageProbe(), batches, SystemProbe(), MallocProbe(), MappingProbe()]
