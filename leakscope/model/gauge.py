"""Gauges: numbers that can be read cheaply at a boundary.

A reading is a plain ``dict[str, int]`` so that a probe can be added without a new schema. Names
that stand for a device carry it before a dot: ``cuda:0.allocated``; those of
structures that a worker copies have a name each (:func:`copied`). Absent means not read there.
"""

from __future__ import annotations

from typing import Literal
from zlib import crc32

from leakscope.model.registries import REGISTRIES

GaugeUnit = Literal["bytes", "count", "microseconds"]

RSS = "rss"
RSS_PEAK = "rss_peak"
PSS = "pss"
PRIVATE = "private"
PRIVATE_DIRTY = "private_dirty"
SHARED = "shared"
MAPPED = "mapped"
HUGE_PAGES = "huge_pages"
SWAPPED = "swapped"
TREE_FILES = "tree_files"
CHILDREN_PSS = "children_pss"
CHILDREN = "children"
THREADS = "threads"
OPEN_FILES = "open_files"
SHARED_DESCRIPTORS = "shared_descriptors"
OPEN_FILES_LIMIT = "open_files_limit"
SHM = "shm"
SHM_FILES = "shm_files"
SHM_UNMAPPED = "shm_unmapped"
GC_COUNT = "gc_gen0"
GC_COLLECTIONS = "gc_collections"
GC_COLLECTED = "gc_collected"
GC_UNCOLLECTABLE = "gc_uncollectable"
GC_FROZEN = "gc_frozen"
GC_ENABLED = "gc_enabled"
GC_PENDING = "gc_pending"
GC_LONG_LIVED = "gc_long_lived"
GC_TIMES = ("gc_time_0", "gc_time_1", "gc_time_2")
"""Of collections that the interpreter ran by itself, by generation."""
GC_PAUSES = ("gc_pause_0", "gc_pause_1", "gc_pause_2")
"""The longest of them since the reading before; absent where there was none."""
GC_EXPLICIT = "gc_asked"
GC_EXPLICIT_TIME = "gc_asked_time"
GC_EXPLICIT_PAUSE = "gc_asked_pause"
MALLOC_IN_USE = "malloc_in_use"
MALLOC_FREE = "malloc_free"
MALLOC_MAPPED = "malloc_mapped"
PYMALLOC_ARENAS = "pymalloc_arenas"
CGROUP_USED = "cgroup_used"
CGROUP_LIMIT = "cgroup_limit"
SYSTEM_AVAILABLE = "system_available"
FIGURES = "open_figures"
BATCH = "batch"
SHAPES = "shapes"
COMPILED = "compiled_entries"
COPIED = "copied"
REGISTRY = "registry"
WAITING = "waiting"
LOOP = "loop"
MAPPED_HEAP = "mapped_heap"
MAPPED_ARENAS = "mapped_arenas"
MAPPED_STACKS = "mapped_stacks"
MAPPED_LIBRARIES = "mapped_libraries"
MAPPED_ANONYMOUS = "mapped_anonymous"
MAPPED_FILES = "mapped_files"
MAPPED_SHARED = "mapped_shared"
MAPPED_DEVICES = "mapped_devices"
MAPPED_FILE = "mapped_file"
MAPPED_MIMALLOC = "mapped_mimalloc"
PINNED_HOST = "pinned_host"
OWN = "leakscope_own"
OWN_RESIDENT = "leakscope_resident"

DEVICE_ALLOCATED = "allocated"
DEVICE_RESERVED = "reserved"
DEVICE_PEAK = "peak_allocated"
DEVICE_USED = "used"
DEVICE_BY_TREE = "used_by_watched"
DEVICE_OWN = "used_by_process"
DEVICE_CHILDREN = "used_by_children"
DEVICE_OTHERS = "used_by_others"
DEVICE_ACTIVE = "active"
DEVICE_REQUESTED = "requested"
DEVICE_PRIVATE = "private_pools"
DEVICE_SEGMENTS = "segments"
DEVICE_BLOCKS = "blocks"
DEVICE_RETRIES = "alloc_retries"
DEVICE_OOMS = "ooms"

MAPPING_KINDS = (
    MAPPED_HEAP,
    MAPPED_ARENAS,
    MAPPED_STACKS,
    MAPPED_LIBRARIES,
    MAPPED_ANONYMOUS,
    MAPPED_FILES,
    MAPPED_SHARED,
    MAPPED_DEVICES,
)
"""Together they are resident memory, divided by what is mapped."""
OWN_KINDS = tuple(k for k in MAPPING_KINDS if k not in (MAPPED_FILES, MAPPED_SHARED))
"""Those that are private memory."""

DEVICE_OUTSIDE = "outside"
DEVICE_OWN_OUTSIDE = "own_outside"
DEVICE_PENDING = "pending_free"
DEVICE_ROUNDING = "rounding"

DERIVED: dict[str, tuple[str, str]] = {
    DEVICE_OUTSIDE: (DEVICE_USED, DEVICE_RESERVED),
    DEVICE_OWN_OUTSIDE: (DEVICE_OWN, DEVICE_RESERVED),
    DEVICE_PENDING: (DEVICE_ACTIVE, DEVICE_ALLOCATED),
    DEVICE_ROUNDING: (DEVICE_ALLOCATED, DEVICE_REQUESTED),
}
"""What is not recorded but follows: the first gauge of the same device less the second."""

DESCRIPTIONS: dict[str, tuple[GaugeUnit, str]] = {
    RSS: ("bytes", "resident memory of the process"),
    RSS_PEAK: ("bytes", "highest resident memory so far, leakscope's censuses left out"),
    PSS: ("bytes", "resident memory, shared pages divided among those who map them"),
    PRIVATE: ("bytes", "resident memory that is the process's own"),
    PRIVATE_DIRTY: ("bytes", "of that, pages that were written to: the rest can be read again"),
    SHARED: ("bytes", "resident memory shared with other processes or files"),
    MAPPED: ("bytes", "resident pages of files and of shared memory"),
    HUGE_PAGES: ("bytes", "private memory that lies in transparent huge pages"),
    SWAPPED: ("bytes", "memory of the process that the kernel has swapped out"),
    TREE_FILES: (
        "bytes",
        "pages of files in a watched process and its children, shared pages divided",
    ),
    CHILDREN_PSS: ("bytes", "proportional memory of all child processes"),
    CHILDREN: ("count", "child processes"),
    THREADS: ("count", "threads of the process"),
    OPEN_FILES: ("count", "open file descriptors"),
    SHARED_DESCRIPTORS: ("count", "open file descriptors of files in /dev/shm"),
    OPEN_FILES_LIMIT: ("count", "how many descriptors the process may have open"),
    SHM: ("bytes", "shared memory files in /dev/shm"),
    SHM_FILES: ("bytes", "of these, files with a name that this user made since the run began"),
    SHM_UNMAPPED: ("bytes", "shared memory that the process keeps open and hasn't mapped"),
    GC_COUNT: ("count", "objects in the collector's youngest generation"),
    GC_COLLECTIONS: ("count", "collections run so far"),
    GC_COLLECTED: ("count", "objects freed by the collector so far"),
    GC_UNCOLLECTABLE: ("count", "objects the collector could not free"),
    GC_FROZEN: ("count", "objects hidden from the collector by gc.freeze()"),
    GC_ENABLED: ("count", "1 while automatic collection is on"),
    GC_PENDING: ("count", "objects that became old since the last full collection"),
    GC_LONG_LIVED: ("count", "objects that survived the last full collection"),
    GC_TIMES[0]: ("microseconds", "what the collector's youngest generation has taken so far"),
    GC_TIMES[1]: ("microseconds", "what its middle generation has taken so far"),
    GC_TIMES[2]: ("microseconds", "what full collections have taken so far, those asked for apart"),
    GC_PAUSES[0]: ("microseconds", "longest collection of the youngest generation since last read"),
    GC_PAUSES[1]: ("microseconds", "longest collection of the middle generation since last read"),
    GC_PAUSES[2]: ("microseconds", "longest full collection by itself since last read"),
    GC_EXPLICIT: ("count", "collections that the program asked for so far, by gc.collect()"),
    GC_EXPLICIT_TIME: ("microseconds", "what these have taken so far"),
    GC_EXPLICIT_PAUSE: ("microseconds", "longest of these since last read"),
    MALLOC_IN_USE: ("bytes", "C heap in use (glibc: uordblks + hblkhd of mallinfo2)"),
    MALLOC_FREE: ("bytes", "C heap that is free but not returned to the system (fordblks)"),
    MALLOC_MAPPED: ("bytes", "C heap in single mappings (hblkhd)"),
    PYMALLOC_ARENAS: ("bytes", "arenas held by Python's small-object allocator"),
    CGROUP_USED: ("bytes", "memory used by the control group"),
    CGROUP_LIMIT: ("bytes", "memory limit of the control group"),
    SYSTEM_AVAILABLE: ("bytes", "memory the system could still give out"),
    FIGURES: ("count", "matplotlib figures that pyplot keeps open"),
    BATCH: ("bytes", "largest batch that a DataLoader's worker was seen to make"),
    SHAPES: ("count", "shapes of tensors that running functions were seen to hold so far"),
    COMPILED: ("count", "compiled versions of functions that torch.compile keeps"),
    COPIED: (
        "count",
        "of 1,000 sampled objects of a structure, those in pages of the worker alone",
    ),
    WAITING: ("count", "tasks or threads that run one function"),
    LOOP: ("count", "passes through the outermost loop that runs"),
    MAPPED_HEAP: ("bytes", "resident in the main heap, where small blocks of malloc lie"),
    MAPPED_ARENAS: ("bytes", "resident in arenas of malloc that threads have to themselves"),
    MAPPED_STACKS: ("bytes", "resident in stacks of threads"),
    MAPPED_LIBRARIES: ("bytes", "resident variables of libraries, and changed pages of files"),
    MAPPED_ANONYMOUS: (
        "bytes",
        "resident in other memory of its own: large blocks, Python's arenas, other allocators",
    ),
    MAPPED_FILES: ("bytes", "resident pages of files as they are on disk"),
    MAPPED_SHARED: ("bytes", "resident in shared memory that is mapped"),
    MAPPED_DEVICES: ("bytes", "resident in mappings of devices' drivers"),
    MAPPED_MIMALLOC: ("bytes", "resident in memory that mimalloc has mapped and named"),
    MAPPED_FILE: ("bytes", "resident pages of one file"),
    PINNED_HOST: ("bytes", "page-locked host memory held by torch"),
    OWN: ("bytes", "memory of leakscope itself"),
    OWN_RESIDENT: (
        "bytes",
        "by how much resident memory rose while leakscope took censuses, the C heap left out",
    ),
    DEVICE_ALLOCATED: ("bytes", "device memory in live tensors"),
    DEVICE_RESERVED: ("bytes", "device memory held by torch's caching allocator"),
    DEVICE_PEAK: ("bytes", "highest device memory in live tensors so far"),
    DEVICE_USED: ("bytes", "device memory used by all processes"),
    DEVICE_BY_TREE: ("bytes", "device memory of the processes that are watched, by the driver"),
    DEVICE_OWN: ("bytes", "device memory of this process, by the driver"),
    DEVICE_CHILDREN: ("bytes", "device memory of its child processes, by the driver"),
    DEVICE_OTHERS: ("bytes", "device memory of all other processes, by the driver"),
    DEVICE_ACTIVE: ("bytes", "live tensors, and frees that another stream still waits for"),
    DEVICE_REQUESTED: ("bytes", "what the program asked for, before the allocator rounds it up"),
    DEVICE_PRIVATE: ("bytes", "reserved by private pools: CUDA graphs and MemPool"),
    DEVICE_SEGMENTS: ("count", "stretches of memory that the allocator took from the driver"),
    DEVICE_BLOCKS: ("count", "blocks in use"),
    DEVICE_RETRIES: ("count", "times the driver had no room and the cache was flushed, so far"),
    DEVICE_OOMS: ("count", "out-of-memory errors of the allocator so far"),
    DEVICE_OUTSIDE: ("bytes", "device memory beyond torch's allocator: context, NCCL, others"),
    DEVICE_OWN_OUTSIDE: (
        "bytes",
        "this process's device memory beyond torch's allocator: contexts, NCCL, libraries",
    ),
    DEVICE_PENDING: ("bytes", "freed by the program, still in use on another stream"),
    DEVICE_ROUNDING: ("bytes", "what rounding adds to what the program asked for"),
}


def copied(path: str) -> str:
    """Return the name of the gauge for how much of a structure was copied, by its path.

    Paths have dots, which would stand for a device.
    """
    return f"{COPIED} {crc32(path.encode()):08x}"


def waiting(key: str) -> str:
    """Return the name of the gauge for how many tasks or threads run one function, by its key."""
    return f"{WAITING} {crc32(key.encode()):08x}"


def is_copied(gauge: str) -> bool:
    """Return whether a gauge measures what was copied of a structure."""
    return gauge.startswith(f"{COPIED} ")


def mapped_file(file: str) -> str:
    """Return the name of the gauge for what is resident of a mapped file."""
    return f"{MAPPED_FILE} {_without_dots(file)}"


def file_of(gauge: str) -> str | None:
    """Return the file of such a gauge; None for another gauge."""
    kind, _, file = gauge.partition(" ")
    return _with_dots(file) if kind == MAPPED_FILE else None


def loop(file: str, line: int) -> str:
    """Return the name of the gauge for the passes through a loop, by where it begins."""
    return f"{LOOP} {_without_dots(file)}:{line}"


def place_of_loop(gauge: str) -> tuple[str, int] | None:
    """Return the file and the line of such a gauge; None for another gauge."""
    kind, _, place = gauge.partition(" ")
    file, _, line = place.rpartition(":")
    return (_with_dots(file), int(line)) if kind == LOOP else None


def _without_dots(file: str) -> str:
    return file.replace("%", "%25").replace(".", "%2E")


def _with_dots(name: str) -> str:
    return name.replace("%2E", ".").replace("%25", "%")


def registry(name: str) -> str:
    """Return the name of the gauge for how many entries a registry has, by the registry's name."""
    return f"{REGISTRY} {name}"


_ENTRIES = {registry(each.name): each.noun for each in REGISTRIES}


def describe(gauge: str) -> tuple[GaugeUnit, str]:
    """Return the unit of a gauge and what it measures, as far as that is known."""
    if gauge in _ENTRIES:
        return "count", _ENTRIES[gauge]
    kind = COPIED if is_copied(gauge) else gauge.rpartition(".")[2]
    kind = MAPPED_FILE if file_of(gauge) is not None else kind
    kind = LOOP if place_of_loop(gauge) is not None else kind
    return DESCRIPTIONS.get(kind, ("bytes", ""))
