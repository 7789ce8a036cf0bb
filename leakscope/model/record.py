"""The records of a recording: what one process writes down while it trains."""

from __future__ import annotations

from typing import Any

import msgspec

from leakscope.model.blocks import DeviceStorages, FrameRow, SegmentRow
from leakscope.model.boundary import Boundary
from leakscope.model.census import Census, Site

SCHEMA_VERSION = 1
"""Version of the run directory: raised when an older reader would misunderstand a newer file."""


class RunManifest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known about a run before training begins (``run.json``)."""

    schema_version: int = SCHEMA_VERSION
    leakscope_version: str = ""
    run_id: str = ""
    created: float = 0.0
    """Seconds since the epoch."""
    command: list[str] = []
    """The command line, values that look like secrets replaced."""
    script: str = ""
    project_root: str = ""
    """Folder whose files count as the user's own code."""
    options: dict[str, Any] = {}
    environment: dict[str, str] = {}
    """Python, torch, platform, host, processor count, allocator settings and the like."""
    memory_total: int | None = None
    """Bytes of memory of the machine."""
    memory_limit: int | None = None
    """The limit that would kill the run: the control group's, else the machine's."""


class HeaderRecord(msgspec.Struct, tag="header", kw_only=True, omit_defaults=True):
    """First record of a recording: which process wrote it."""

    schema_version: int = SCHEMA_VERSION
    role: str = "main"
    """``main``, ``rank`` or ``worker``."""
    rank: int = 0
    world_size: int = 1
    worker: int | None = None
    pid: int = 0
    host: str = ""
    started: float = 0.0


class BoundaryRecord(msgspec.Struct, tag="boundary", kw_only=True, omit_defaults=True):
    """A boundary and the gauges read there."""

    boundary: Boundary
    gauges: dict[str, int] = {}


class CensusRecord(msgspec.Struct, tag="census", kw_only=True, omit_defaults=True):
    """A census taken at the boundary with this index (recorded before it)."""

    boundary: int
    census: Census


class AllocationRecord(msgspec.Struct, tag="allocation", kw_only=True, omit_defaults=True):
    """A window of tracemalloc: what was allocated in it and still lives, by line."""

    first_boundary: int
    last_boundary: int
    sites: list[Site] = []
    traced_bytes: int = 0


class DeviceSnapshotRecord(msgspec.Struct, tag="device_snapshot", kw_only=True, omit_defaults=True):
    """A summary of ``torch.cuda.memory_snapshot`` taken with a census."""

    boundary: int
    device: str
    segments: int = 0
    reserved: int = 0
    allocated: int = 0
    active: int = 0
    requested: int = 0
    cached: int = 0
    """Bytes in segments that are wholly free: ``empty_cache`` would return them."""
    stuck: int = 0
    """Inactive bytes in segments that are partly used: fragmentation."""
    private: int = 0
    """Reserved by private pools: CUDA graphs and ``MemPool``."""
    private_pools: int = 0
    """How many of them have segments."""
    largest_live: int = 0
    """The largest block in use."""
    largest_hole: int = 0
    pending_free: int = 0
    releasable: int = 0
    """The part of ``stuck`` that ``empty_cache`` returns too: free pages of expandable segments."""
    pages: int = 0
    """Stuck bytes that would be whole pages if their segments were expandable."""
    expandable: bool = False
    """Whether any segment is."""


class BlockListRecord(msgspec.Struct, tag="block_list", kw_only=True, omit_defaults=True):
    """The blocks of a device's allocator just after a census, and the storages that it met."""

    boundary: int
    device: str
    segments: list[SegmentRow] = []
    stacks: list[list[FrameRow]] = []
    """Who allocated, innermost first; where a history was being recorded."""
    settings: dict[str, str] = {}
    """The allocator's settings, as in a snapshot of torch's."""
    left_out: int = 0
    """Blocks that were too many to be recorded, with their segments."""
    storages: DeviceStorages | None = None


class OutOfMemoryRecord(msgspec.Struct, tag="out_of_memory", kw_only=True, omit_defaults=True):
    """Memory ran out: what was asked for, what there was, and who held it at that moment."""

    boundary: int
    """The last boundary before it; so are phase, epoch, step and batch."""
    time_s: float
    phase: str = ""
    epoch: int = 0
    step: int = 0
    batch: int = 0
    seen: str
    """``observer``: inside the allocator, before the exception unwound. ``exception``: an exception
    left the program or the block; the census then names what the frames of its traceback hold."""
    device: str = "host"
    error: str = ""
    """Type of the exception."""
    message: str = ""
    requested: int | None = None
    allocated: int | None = None
    """Bytes in live tensors of the device; on the host resident memory."""
    reserved: int | None = None
    """Bytes held by torch's allocator; on the host the address space in use."""
    free: int | None = None
    """Bytes the device had left; on the host the least that any limit left."""
    limits: dict[str, int] = {}
    """Bytes by what limits: ``device``, or ``machine``, ``cgroup`` and ``address_space``."""
    largest_hole: int | None = None
    """Largest free block of the allocator that the request could have taken."""
    snapshot: DeviceSnapshotRecord | None = None
    number: int = 1
    """How often it has happened so far, this time included."""
    census: Census | None = None
    no_census: str = ""
    """Why there is none."""


class CleanupStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cleaning call and what it changed, in bytes; below 0 where others took more meanwhile."""

    call: str
    """``gc.collect()``, ``empty_cache()``, ``empty_host_cache()`` or ``malloc_trim(0)``."""
    seconds: float
    objects: int | None = None
    """Unreachable objects that a collection found."""
    host_freed: int | None = None
    """By how much the live part of the C heap fell; None where nobody tells it."""
    host_returned: int = 0
    """By how much resident memory fell."""
    device_freed: dict[str, int] = {}
    """By how much live tensors fell, per device."""
    device_returned: dict[str, int] = {}
    """By how much torch's reserved memory fell, per device."""
    pinned_returned: int = 0


class CleanupRecord(msgspec.Struct, tag="cleanup", kw_only=True, omit_defaults=True):
    """The cleaning calls tried at a boundary, one after the other, on the user's request."""

    boundary: int
    steps: list[CleanupStep] = []
    before: dict[str, int] = {}
    """Gauges before the first call: resident memory, the C heap, allocated and reserved bytes."""
    after: dict[str, int] = {}
    """The same after the last."""
    remarks: list[str] = []
    """What was left out, and why."""


class SourceRecord(msgspec.Struct, tag="source", kw_only=True, omit_defaults=True):
    """Text of a source file of the user's: reports need neither the file nor the machine."""

    path: str
    text: str


class OverheadRecord(msgspec.Struct, tag="overhead", kw_only=True, omit_defaults=True):
    """What leakscope itself has cost so far (each record replaces the one before)."""

    boundary: int
    seconds: dict[str, float] = {}
    """By activity: ``gauges``, ``census``, ``tracemalloc``, ``recording``, ``boundary``."""
    censuses: int = 0
    boundaries: int = 0
    recorded_boundaries: int = 0
    own_bytes: int = 0
    own_peak_bytes: int = 0


class ErrorRecord(msgspec.Struct, tag="error", kw_only=True, omit_defaults=True):
    """A fault of leakscope's own that was kept away from the training."""

    where: str
    message: str
    boundary: int = 0
    disabled: bool = False
    """Whether that part was switched off for the rest of the run."""


class NoteRecord(msgspec.Struct, tag="note", kw_only=True, omit_defaults=True):
    """Something the report should mention, e.g. a census skipped for lack of memory."""

    slug: str
    message: str
    boundary: int = 0


class EndRecord(msgspec.Struct, tag="end", kw_only=True, omit_defaults=True):
    """Last record: how the program ended. Absent after ``kill -9`` or ``os._exit``."""

    status: str
    """``completed``, ``exception``, ``exit``, ``interrupted`` or ``detached`` (profile closed)."""
    exit_code: int = 0
    exception: str = ""
    """Type and message of the exception that ended the program."""
    time_s: float = 0.0


Record = (
    HeaderRecord
    | BoundaryRecord
    | CensusRecord
    | AllocationRecord
    | DeviceSnapshotRecord
    | BlockListRecord
    | OutOfMemoryRecord
    | CleanupRecord
    | SourceRecord
    | OverheadRecord
    | ErrorRecord
    | NoteRecord
    | EndRecord
)
