"""Gauges: numbers that can be read cheaply at a boundary.

A reading is a plain ``dict[str, int]`` so that a probe can be added without a new schema. Names
that stand for a device carry it before a dot: ``cuda:0.allocated``. Absent means not read there.
"""

from __future__ import annotations

from typing import Literal

GaugeUnit = Literal["bytes", "count"]

RSS = "rss"
PSS = "pss"
PRIVATE = "private"
SHARED = "shared"
CHILDREN_PSS = "children_pss"
CHILDREN = "children"
THREADS = "threads"
OPEN_FILES = "open_files"
SHM = "shm"
GC_COUNT = "gc_gen0"
GC_COLLECTIONS = "gc_collections"
GC_COLLECTED = "gc_collected"
GC_UNCOLLECTABLE = "gc_uncollectable"
GC_FROZEN = "gc_frozen"
GC_ENABLED = "gc_enabled"
MALLOC_IN_USE = "malloc_in_use"
MALLOC_FREE = "malloc_free"
MALLOC_MAPPED = "malloc_mapped"
PYMALLOC_ARENAS = "pymalloc_arenas"
CGROUP_USED = "cgroup_used"
CGROUP_LIMIT = "cgroup_limit"
SYSTEM_AVAILABLE = "system_available"
FIGURES = "open_figures"
PINNED_HOST = "pinned_host"
OWN = "leakscope_own"

DEVICE_ALLOCATED = "allocated"
DEVICE_RESERVED = "reserved"
DEVICE_PEAK = "peak_allocated"
DEVICE_USED = "used"

DESCRIPTIONS: dict[str, tuple[GaugeUnit, str]] = {
    RSS: ("bytes", "resident memory of the process"),
    PSS: ("bytes", "resident memory, shared pages divided among those who map them"),
    PRIVATE: ("bytes", "resident memory that is the process's own"),
    SHARED: ("bytes", "resident memory shared with other processes or files"),
    CHILDREN_PSS: ("bytes", "proportional memory of all child processes"),
    CHILDREN: ("count", "child processes"),
    THREADS: ("count", "threads of the process"),
    OPEN_FILES: ("count", "open file descriptors"),
    SHM: ("bytes", "shared memory files in /dev/shm"),
    GC_COUNT: ("count", "objects in the collector's youngest generation"),
    GC_COLLECTIONS: ("count", "collections run so far"),
    GC_COLLECTED: ("count", "objects freed by the collector so far"),
    GC_UNCOLLECTABLE: ("count", "objects the collector could not free"),
    GC_FROZEN: ("count", "objects hidden from the collector by gc.freeze()"),
    GC_ENABLED: ("count", "1 while automatic collection is on"),
    MALLOC_IN_USE: ("bytes", "C heap in use (glibc mallinfo2 uordblks + hblkhd)"),
    MALLOC_FREE: ("bytes", "C heap that is free but not returned to the system (fordblks)"),
    MALLOC_MAPPED: ("bytes", "C heap in single mappings (hblkhd)"),
    PYMALLOC_ARENAS: ("bytes", "arenas held by Python's small-object allocator"),
    CGROUP_USED: ("bytes", "memory used by the control group"),
    CGROUP_LIMIT: ("bytes", "memory limit of the control group"),
    SYSTEM_AVAILABLE: ("bytes", "memory the system could still give out"),
    FIGURES: ("count", "matplotlib figures that pyplot keeps open"),
    PINNED_HOST: ("bytes", "page-locked host memory held by torch"),
    OWN: ("bytes", "memory of leakscope itself"),
    DEVICE_ALLOCATED: ("bytes", "device memory in live tensors"),
    DEVICE_RESERVED: ("bytes", "device memory held by torch's caching allocator"),
    DEVICE_PEAK: ("bytes", "highest device memory in live tensors so far"),
    DEVICE_USED: ("bytes", "device memory used by all processes"),
}


def unit_of(gauge: str) -> GaugeUnit:
    """Return whether a gauge counts bytes or things; gauges nobody described count bytes."""
    return DESCRIPTIONS.get(gauge.rpartition(".")[2], ("bytes", ""))[0]
