"""The records of a recording: what one process writes down while it runs."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import msgspec

from leakscope.model.boundary import Boundary, Seconds, Whole
from leakscope.model.census import Census, Site
from leakscope.model.device import DeviceStorages, FrameRow, SegmentRow

_Z = 1.959964
"""Of the normal distribution, for intervals that hold 95 % of what may be true."""


class NativeKind(Enum):
    """How memory was requested."""

    BLOCK = "block"
    """``malloc`` and its like."""
    MAPPING = "mapping"
    """``mmap``: private memory that may be written, neither files nor reserved addresses."""


class NativeOwner(Enum):
    """Who keeps books of such memory: what others count as well is counted once in a ledger."""

    LIBRARY = "library"
    """Nobody but the library itself."""
    INTERPRETER = "interpreter"
    """Python: blocks of its objects beyond 512 bytes, and the arenas of smaller ones."""
    TENSOR = "tensor"
    """torch: data of tensors on the host."""
    ARRAY = "array"
    """numpy: data of arrays."""
    LEAKSCOPE = "leakscope"


class NativeSite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Live native memory that one function allocated for one line of the user's."""

    library: str
    """Name of the file; empty where the library was unloaded."""
    function: str = ""
    """Without arguments; ``+0x1a2b`` in the library where there is no symbol."""
    file: str = ""
    """The innermost line of the user's below which it was allocated; else the innermost of all."""
    line: Whole = 0
    caller: str = ""
    """The Python function of this line."""
    is_awaited: bool = False
    """Whether a thread that never ran Python allocated it while the thread that ran Python last
    waited at this line: mostly for what it had called, perhaps for something else."""
    kind: NativeKind = NativeKind.BLOCK
    owner: NativeOwner = NativeOwner.LIBRARY
    bytes: Whole
    """An unbiased estimate of what is live."""
    samples: Whole
    """Live blocks that it rests on."""
    chance_bytes: Whole = 0
    """The part of the estimate that chance decides; 0 where every block is so large that it is
    sampled."""
    deviation_bytes: Whole = 0
    """Standard deviation of the estimate."""
    stack: list[str] = []
    """Functions of the largest group of samples, innermost first, as ``library!function``. In a
    recording a row has them the first time alone."""

    @property
    def interval(self) -> tuple[int, int]:
        """Bytes that are live, with 95 % confidence: from, to."""
        return interval_of(self.bytes, self.chance_bytes, self.deviation_bytes)


def interval_of(estimate: float, chance: float, deviation: float) -> tuple[int, int]:
    """Return between which bytes the truth lies, with 95 % confidence.

    The gamma interval for weighted sums of rare events (Fay and Feuer 1997; with the mean weight,
    Tiwari et al. 2006), for the part of the estimate that chance decides.
    """
    if deviation <= 0 or chance <= 0:
        return round(estimate), round(estimate)
    certain, variance = max(estimate - chance, 0.0), deviation**2
    weight = variance / chance
    events = chance / weight
    low = certain + weight * _gamma_quantile(events, -_Z)
    high = certain + weight * _gamma_quantile(events + 1, _Z)
    return round(low), round(high)


def _gamma_quantile(shape: float, z: float) -> float:
    """Return a quantile of a gamma distribution, by Wilson and Hilferty's approximation."""
    cube = 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))
    return float(shape * max(cube, 0.0) ** 3)


SCHEMA_VERSION = 1
"""Version of the run directory: raised when an older reader would misunderstand a newer file."""


VERIFY_FOLDER = "leakscope-verify-"
"""What the folder's name begins with in which ``leakscope verify`` runs a program: it is gone when
the run has ended."""


class RunManifest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known about a run before training begins (``run.json``)."""

    schema_version: Whole = SCHEMA_VERSION
    leakscope_version: str = ""
    run_id: str = ""
    created: Seconds = 0.0
    """Seconds since the epoch."""
    command: list[str] = []
    """The command line, values that look like secrets replaced."""
    script: str = ""
    project_root: str = ""
    """Folder whose files count as the user's own code."""
    options: dict[str, Any] = {}
    environment: dict[str, str] = {}
    """Python, torch, platform, host, processor count, allocator settings and the like."""
    memory_total: Whole | None = None
    """Bytes of memory of the machine."""
    memory_limit: Whole | None = None
    """The limit that would kill the run: the control group's, else the machine's."""
    launch: str = ""
    """What the ranks of one launch have in common; empty where a process trained alone."""


class HeaderRecord(msgspec.Struct, tag="header", kw_only=True, omit_defaults=True):
    """First record of a recording: which process wrote it."""

    schema_version: Whole = SCHEMA_VERSION
    role: str = "main"
    """``main``, ``rank``, ``worker`` or ``child``; ``monitor`` of what was watched from outside."""
    rank: Whole = 0
    world_size: Whole = 1
    worker: Whole | None = None
    pid: Whole = 0
    host: str = ""
    started: Seconds = 0.0
    attempt: Whole = 0
    """How often the launcher of the ranks had started all of them before."""
    loader: Whole = 0
    """Of a worker: the number of its DataLoader in the process that made it, from 1."""
    generation: Whole = 0
    """How often that loader had started workers before."""
    start_method: str = ""
    """``fork``, ``spawn`` or ``forkserver``; of a child also ``subprocess``, ``os.fork`` and the
    like."""
    parent: Whole = 0
    """Process id of the process that made the loader, or started the child."""
    prefetch: Whole = 0
    """How many batches each of that loader's workers may have loaded ahead."""
    child: Whole | None = None
    """Of a child process: which of those that its parent started, from 1."""
    name: str = ""
    """What the program calls that process, such as ``SpawnPoolWorker-1``."""
    target: str = ""
    """The function that it runs, or its command line."""
    lived_s: Seconds = 0.0
    """Seconds that its process had lived when the recording began."""
    group_rank: Whole | None = None
    """Of a child that trains together with others: which of them it is, by their process group."""
    group_size: Whole = 0

    @property
    def is_primary(self) -> bool:
        """Whether the user or a launcher of ranks started it: it is no worker and no child."""
        return self.worker is None and self.child is None


class BoundaryRecord(msgspec.Struct, tag="boundary", kw_only=True, omit_defaults=True):
    """A boundary and the gauges read there."""

    boundary: Boundary
    gauges: dict[str, Whole] = {}
    events: dict[str, Whole] = {}
    """How often each has happened since the recording began, by the names of
    :class:`leakscope.model.boundary.Event`; those alone whose count has changed since the boundary
    recorded before. Empty in recordings of versions that counted none."""


class CensusRecord(msgspec.Struct, tag="census", kw_only=True, omit_defaults=True):
    """A census taken at the boundary with this index (recorded before it)."""

    boundary: Whole
    census: Census


class AllocationRecord(msgspec.Struct, tag="allocation", kw_only=True, omit_defaults=True):
    """A window of tracemalloc: what was allocated in it and still lives, by line."""

    first_boundary: Whole
    last_boundary: Whole
    sites: list[Site] = []
    traced_bytes: Whole = 0


class NativeAllocationsRecord(
    msgspec.Struct, tag="native_allocations", kw_only=True, omit_defaults=True
):
    """Native memory that is live at a boundary, estimated from sampled allocations.

    Of what was allocated since sampling began: what was there before has no stack.
    """

    boundary: Whole
    interval_bytes: Whole
    """Mean number of bytes from one sample to the next."""
    bytes: Whole = 0
    """All of it, rows that are left out included."""
    samples: Whole = 0
    chance_bytes: Whole = 0
    deviation_bytes: Whole = 0
    """Both as in :class:`leakscope.model.record.NativeSite`."""
    sites: list[NativeSite] = []
    """The largest first; those below a small part of all bytes are left out."""
    by_owner: dict[str, Whole] = {}
    """Bytes of all sites by :class:`leakscope.model.record.NativeOwner`."""
    small_sites: list[NativeSite] = []
    """The user's lines that made most of Python's small objects (up to 512 bytes) that are alive.
    They lie in arenas, which ``sites`` has as what the interpreter allocated."""
    is_highest: bool = False
    """Whether resident memory had never been so high before."""
    is_on: bool = True
    """False once a fault of its own or another tool has ended it: nothing is added any more."""
    taken: Whole = 0
    """Samples since the beginning."""
    dropped: Whole = 0
    """Of these those for which there was no room."""
    unseen_frees: Whole = 0
    """Samples whose address was handed out again though no free was seen."""
    own_bytes: Whole = 0
    """What the sampler itself has resident."""


class CompilationRecord(msgspec.Struct, tag="compilation", kw_only=True, omit_defaults=True):
    """``torch.compile`` has compiled a frame."""

    boundary: Whole
    """The boundary at which that was noticed."""
    function: str = ""
    file: str = ""
    line: Whole = 0
    """The first line of the function."""
    number: Whole = 0
    """How often this frame had been compiled before."""
    reason: str = ""
    """The guard that failed, where it was compiled again."""
    guards: Whole = 0
    """How many guards the compiled code has."""
    caller_file: str = ""
    """The line of the program's at which it was called, where this version of torch tells."""
    caller_line: Whole = 0
    hit_limit: bool = False
    """Whether nothing was compiled, because the function has as many entries as it may have."""


class CompiledFunction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function that has entries in dynamo's cache."""

    function: str
    file: str = ""
    line: Whole = 0
    entries: Whole
    """Of all code objects of that function together."""
    most: Whole
    """Of the code object that has most: the limit is one of code objects."""
    codes: Whole = 1
    """How many code objects there are: ``exec`` makes one each time, ``def`` one for all."""


class CapturedGraphs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CUDA graphs that ``mode="reduce-overhead"`` has recorded for inputs of one form."""

    device: str
    shapes: str
    """Those of the inputs that change, such as ``8x512``."""
    graphs: Whole


class CompiledCodeRecord(msgspec.Struct, tag="compiled_code", kw_only=True, omit_defaults=True):
    """What ``torch.compile`` keeps (each record replaces the one before)."""

    boundary: Whole
    functions: list[CompiledFunction] = []
    limit: Whole = 0
    """Entries that a code object may have (``recompile_limit``)."""
    cap: Whole = 0
    """The same, whatever its guards name (``accumulated_recompile_limit``)."""
    is_raised: bool = False
    """Whether the program has raised the limit beyond what torch ever allows by itself."""
    is_error: bool = False
    """Whether the program fails at the limit; else functions run uncompiled there."""
    workers: Whole = 0
    """Processes of Inductor's that compile, and the one that starts them."""
    worker_bytes: Whole = 0
    """Their resident memory, what they share included."""
    ends_idle_workers: bool = False
    """Whether they end by themselves after a while (``quiesce_async_compile_pool``)."""
    graphs: list[CapturedGraphs] = []


class DeviceSnapshotRecord(msgspec.Struct, tag="device_snapshot", kw_only=True, omit_defaults=True):
    """A summary of ``torch.cuda.memory_snapshot`` taken with a census."""

    boundary: Whole
    device: str
    segments: Whole = 0
    reserved: Whole = 0
    allocated: Whole = 0
    active: Whole = 0
    requested: Whole = 0
    cached: Whole = 0
    """Bytes in segments that are wholly free: ``empty_cache`` would return them."""
    stuck: Whole = 0
    """Inactive bytes in segments that are partly used: fragmentation."""
    private: Whole = 0
    """Reserved by private pools: CUDA graphs and ``MemPool``."""
    private_pools: Whole = 0
    """How many of them have segments."""
    largest_live: Whole = 0
    """The largest block in use."""
    largest_hole: Whole = 0
    pending_free: Whole = 0
    releasable: Whole = 0
    """The part of ``stuck`` that ``empty_cache`` returns too: free pages of expandable segments."""
    pages: Whole = 0
    """Stuck bytes that would be whole pages if their segments were expandable."""
    expandable: bool = False
    """Whether any segment is."""


class BlockListRecord(msgspec.Struct, tag="block_list", kw_only=True, omit_defaults=True):
    """The blocks of a device's allocator just after a census, and the storages that it met."""

    boundary: Whole
    device: str
    segments: list[SegmentRow] = []
    stacks: list[list[FrameRow]] = []
    """Who allocated, innermost first; where a history was being recorded."""
    settings: dict[str, str] = {}
    """The allocator's settings, as in a snapshot of torch's."""
    left_out: Whole = 0
    """Blocks that were too many to be recorded, with their segments."""
    storages: DeviceStorages | None = None


class OutOfMemoryRecord(msgspec.Struct, tag="out_of_memory", kw_only=True, omit_defaults=True):
    """Memory ran out: what was requested, what there was, and who held it at that moment."""

    boundary: Whole
    """The last boundary before it; so are phase, epoch, step and batch."""
    time_s: Seconds
    phase: str = ""
    epoch: Whole = 0
    step: Whole = 0
    batch: Whole = 0
    seen: str
    """``observer``: inside the allocator, before the exception unwound. ``exception``: an exception
    left the program or the block; the census then names what the frames of its traceback hold."""
    device: str = "host"
    error: str = ""
    """Type of the exception."""
    message: str = ""
    requested: Whole | None = None
    allocated: Whole | None = None
    """Bytes in live tensors of the device; on the host resident memory."""
    reserved: Whole | None = None
    """Bytes held by torch's allocator; on the host the address space in use."""
    free: Whole | None = None
    """Bytes the device had left; on the host the least that any limit left."""
    limits: dict[str, Whole] = {}
    """Bytes by what limits: ``device``, or ``machine``, ``cgroup`` and ``address_space``."""
    largest_hole: Whole | None = None
    """Largest free block of the allocator that the request could have taken."""
    snapshot: DeviceSnapshotRecord | None = None
    number: Whole = 1
    """How often it has happened so far, this time included."""
    census: Census | None = None
    no_census: str = ""
    """Why there is none."""


class SnapshotRecord(msgspec.Struct, tag="snapshot", kw_only=True, omit_defaults=True):
    """A census that the user requested; it belongs to no series."""

    boundary: Boundary
    """Its index is that of the last boundary before it."""
    gauges: dict[str, Whole] = {}
    census: Census | None = None
    no_census: str = ""
    """Why there is none."""
    at_once: bool = False
    """Whether it was taken in the middle of a piece of training, for no boundary came soon."""
    seconds: Seconds = 0.0
    """How long it held the program up."""


class SnapshotSignalRecord(msgspec.Struct, tag="snapshot_signal", kw_only=True, omit_defaults=True):
    """Which signal has such a census taken (each record replaces the one before)."""

    signal: Whole = 0
    """Its number; 0 while there is none."""
    why_not: str = ""
    """Why there is none though the user wanted one."""


class CleanupStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cleaning call and what it changed, in bytes; below 0 where others took more meanwhile."""

    call: str
    """``gc.collect()``, ``empty_cache()``, ``empty_host_cache()`` or ``malloc_trim(0)``."""
    seconds: Seconds
    objects: Whole | None = None
    """Unreachable objects that a collection found."""
    host_freed: Whole | None = None
    """By how much the live part of the C heap fell; None where it is unknown."""
    host_returned: Whole = 0
    """By how much resident memory fell."""
    device_freed: dict[str, Whole] = {}
    """By how much live tensors fell, per device."""
    device_returned: dict[str, Whole] = {}
    """By how much torch's reserved memory fell, per device."""
    pinned_returned: Whole = 0


class CleanupRecord(msgspec.Struct, tag="cleanup", kw_only=True, omit_defaults=True):
    """The cleaning calls tried at a boundary, one after the other, on the user's request."""

    boundary: Whole
    steps: list[CleanupStep] = []
    before: dict[str, Whole] = {}
    """Gauges before the first call: resident memory, the C heap, allocated and reserved bytes."""
    after: dict[str, Whole] = {}
    """The same after the last."""
    remarks: list[str] = []
    """What was left out, and why."""


class CleaningCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the program's own calls of a cleaning function took and brought, from one line."""

    call: str
    """``gc.collect()`` or ``torch.cuda.empty_cache()``, say."""
    file: str = ""
    """The innermost line of the user's; empty where there was none."""
    line: Whole = 0
    times: Whole
    seconds: Seconds
    longest_s: Seconds = 0.0
    objects: Whole | None = None
    """Unreachable objects that collections found; None of other calls."""
    weighed: Whole = 0
    """Before and after how many of them memory was read."""
    freed_bytes: Whole = 0
    """What these freed: of collections on the host, the larger of what the live part of the C heap
    and resident memory fell by; of a cache, what the device's reserved memory fell by."""
    most_freed_bytes: Whole = 0
    """The most that one of them freed."""


class CleaningCallsRecord(msgspec.Struct, tag="cleaning_calls", kw_only=True, omit_defaults=True):
    """All such calls so far (each record replaces the one before)."""

    boundary: Whole
    calls: list[CleaningCall] = []


class RegistryEntriesRecord(
    msgspec.Struct, tag="registry_entries", kw_only=True, omit_defaults=True
):
    """What registries that have grown were given of late (each record replaces the one before)."""

    boundary: Whole
    entries: dict[str, list[str]] = {}
    """By the name of the registry, what some of the latest entries are called."""


class SourceRecord(msgspec.Struct, tag="source", kw_only=True, omit_defaults=True):
    """Text of a source file of the user's: reports need neither the file nor the machine."""

    path: str
    text: str
    title: str = ""
    """What a person calls it, where that isn't the path: ``In [5]`` for a cell of a notebook."""


class OverheadRecord(msgspec.Struct, tag="overhead", kw_only=True, omit_defaults=True):
    """What leakscope itself has cost so far (each record replaces the one before)."""

    boundary: Whole
    seconds: dict[str, Seconds] = {}
    """By activity: ``gauges``, ``census``, ``tracemalloc``, ``recording``, ``boundary``."""
    censuses: Whole = 0
    boundaries: Whole = 0
    recorded_boundaries: Whole = 0
    own_bytes: Whole = 0
    own_peak_bytes: Whole = 0
    put_off: dict[str, Whole] = {}
    """How often what was due waited for a later boundary, by what the program was inside of."""
    postponed_by_budget: Whole = 0
    """How often a kind of boundary had to wait for its census because of the budget."""
    left_out_by_pause: Whole = 0
    """Censuses that were not taken because each would have paused the program for too long."""
    made_cheaper_by_pause: Whole = 0
    """Censuses that looked at less for the same reason."""


class ErrorRecord(msgspec.Struct, tag="error", kw_only=True, omit_defaults=True):
    """A fault of leakscope's own that was kept away from the training."""

    where: str
    message: str
    boundary: Whole = 0
    disabled: bool = False
    """Whether that part was switched off for the rest of the run."""


UNRECORDED_CHILDREN = "children"
"""Slug of the note that child processes did most of the work, and weren't recorded."""
CENSUS_SKIPPED = "census-skipped-threads"
"""Slug of the note that without the native walker no census was taken at boundaries by time."""


class NoteRecord(msgspec.Struct, tag="note", kw_only=True, omit_defaults=True):
    """Something the report should mention, e.g. a census skipped for lack of memory."""

    slug: str
    message: str
    boundary: Whole = 0


class ProcessEndRecord(msgspec.Struct, tag="process_end", kw_only=True, omit_defaults=True):
    """A child process has ended by itself, and not as one that is done."""

    boundary: Whole
    """The last boundary before that was noticed."""
    pid: Whole
    exit_code: int
    """Below 0: the signal that ended it."""
    name: str = ""
    """What multiprocessing calls such processes, without a number: ``ForkPoolWorker``."""
    loader: Whole = 0
    """Of a worker: the number of its DataLoader, from 1."""


class EndRecord(msgspec.Struct, tag="end", kw_only=True, omit_defaults=True):
    """Last record: how the program ended. Absent after ``kill -9`` or ``os._exit``."""

    status: str
    """``completed``, ``exception``, ``exit``, ``interrupted`` or ``detached`` (profile closed)."""
    exit_code: Whole = 0
    exception: str = ""
    """Type and message of the exception that ended the program."""
    time_s: Seconds = 0.0
    is_cut_off: bool = False
    """Whether recording had stopped before, and there was no room for a note that says why."""


Record = (
    HeaderRecord
    | BoundaryRecord
    | CensusRecord
    | AllocationRecord
    | NativeAllocationsRecord
    | CompilationRecord
    | CompiledCodeRecord
    | DeviceSnapshotRecord
    | BlockListRecord
    | OutOfMemoryRecord
    | SnapshotRecord
    | SnapshotSignalRecord
    | CleanupRecord
    | CleaningCallsRecord
    | RegistryEntriesRecord
    | SourceRecord
    | OverheadRecord
    | ErrorRecord
    | NoteRecord
    | ProcessEndRecord
    | EndRecord
)
