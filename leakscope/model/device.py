"""Memory of a device: torch's allocator as snapshot files have it and as it is recorded, what was
live there at a moment, and what is concluded where memory ran out.

All sizes are bytes. ``requested`` is what the program asked for, ``allocated`` what the allocator
gave for it (rounded up), ``reserved`` what it took from the driver. A segment is what the allocator
took from the driver; a block is a piece of it, live or free. A stack is kept once however many
blocks and entries it made, so stacks compare by identity.

Blocks lie one after another in their segment, so that only the segment says where. Addresses serve
to find a storage among the blocks of the same moment; they mean nothing at another.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from functools import cached_property

import msgspec

from leakscope.model.boundary import Whole

DEFAULT_POOL = (0, 0)
"""Any other pool is private: of a CUDA graph's capture or of a ``MemPool``."""
UNKNOWN_POOL = (-1, -1)
"""What a block born in no known segment belongs to."""
SMALL_PAGE = 2 << 20
LARGE_PAGE = 20 << 20
"""What expandable segments grow and shrink by."""


class BlockState(IntEnum):
    """What a block is used for; recordings hold the numbers."""

    FREE = 0
    ALLOCATED = 1
    PENDING = 2
    """Freed by the program, still in use on another stream."""


TORCH_BLOCK_STATES = {
    "inactive": BlockState.FREE,
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING,
    "active_awaiting_free": BlockState.PENDING,
}
"""The state by its name in torch's snapshots."""


class StackFrame(msgspec.Struct, frozen=True):
    """One function on a stack."""

    file: str
    line: int
    name: str


class Stack(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Who allocated: innermost first. ``forward`` names a gradient's line of the forward pass."""

    frames: tuple[StackFrame, ...]
    forward: tuple[str, ...] = ()

    @cached_property
    def python(self) -> tuple[StackFrame, ...]:
        """The frames of Python code, innermost first."""
        return tuple(frame for frame in self.frames if is_python(frame))


class Block(msgspec.Struct, eq=False):
    """A piece of a segment; ``requested`` is what the program requested."""

    address: int
    size: int
    requested: int
    state: BlockState
    stack: Stack | None = None
    born: int | None = None
    """The entry of the trace that allocated it; None where it is older than the trace."""


class Segment(msgspec.Struct, eq=False):
    """A stretch of device memory from the driver, with the totals that torch wrote down for it."""

    device: int
    address: int
    size: int
    stream: int
    pool: tuple[int, int]
    is_small: bool
    is_expandable: bool
    blocks: list[Block]
    allocated: int
    active: int
    requested: int
    stack: Stack | None = None


class HistoryEntry(msgspec.Struct, eq=False):
    """One event of the trace. ``size`` is what was requested, for segments their size."""

    action: str
    address: int
    size: int
    stream: int
    time_us: int | None = None
    stack: Stack | None = None
    device_free: int | None = None
    """Bytes that the driver still had; only entries of kind ``oom`` have them."""
    pool: tuple[int, int] | None = None


class Annotation(msgspec.Struct, frozen=True):
    """The begin or the end of a stretch that torch or the program named."""

    name: str
    is_start: bool
    time_us: int


class AllocatorSnapshot(msgspec.Struct, kw_only=True, eq=False):
    """A snapshot file as far as it could be read; ``oddities`` say what was strange about it."""

    name: str
    segments: list[Segment]
    traces: dict[int, list[HistoryEntry]] = {}
    annotations: list[Annotation] = []
    settings: dict[str, str] = {}
    version: str = ""
    """The releases of torch that write such a file, recognised by its keys."""
    oddities: list[str] = []

    @property
    def devices(self) -> list[int]:
        """The devices that have segments or a history."""
        devices = {segment.device for segment in self.segments}
        return sorted(devices | {device for device, trace in self.traces.items() if trace})


def is_python(frame: StackFrame) -> bool:
    """Return whether a frame is of Python code; native frames name objects, ``.cpp`` or ``??``."""
    return frame.file.endswith((".py", ".pyx", ".ipynb")) or frame.file.startswith(
        ("<ipython", "<stdin", "<string", "<cell", "<eval")
    )


def whole_pages(start: int, size: int, *, is_small: bool) -> int:
    """Return how much of a hole, ``start`` bytes into its segment, consists of whole pages."""
    page = SMALL_PAGE if is_small else LARGE_PAGE
    return max(0, (start + size) // page * page - -(-start // page) * page)


class BlockRow(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a segment."""

    size: Whole
    requested: Whole
    """What the program requested; 0 of a free block."""
    state: Whole
    stack: Whole = -1
    """Index in the stacks of the list; -1 where none was recorded."""


class SegmentRow(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of device memory from the driver."""

    address: Whole
    size: Whole
    stream: Whole
    pool: tuple[Whole, Whole]
    is_small: bool
    is_expandable: bool
    blocks: list[BlockRow]


class FrameRow(msgspec.Struct, frozen=True, array_like=True):
    """One function on a stack."""

    file: str
    line: Whole
    name: str


class StorageRow(msgspec.Struct, frozen=True, array_like=True):
    """Memory of one tensor storage, which all its views share."""

    address: Whole
    bytes: Whole
    role: str
    """The component it belongs to, as in a census."""
    holder: Whole
    """Index in the holders; -1 where nothing with a name holds it."""


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """What holds storages: the nearest object that a census would write down."""

    path: str
    name: str


class DeviceStorages(msgspec.Struct, frozen=True, kw_only=True):
    """The storages that a census met on one device."""

    device: str
    storages: list[StorageRow] = []
    holders: list[Holder] = []
    left_out: Whole = 0
    """Storages, the smallest, that were too many to be recorded."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to change: whether it would have helped here, and how that is known."""

    title: str
    helps: bool
    evidence: str
    bytes: int | None = None


class LiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what was live, of one component or under one name."""

    name: str
    bytes: int
    share: float
    """Of all that was live."""
    detail: str = ""


class OutOfMemory(msgspec.Struct, frozen=True, kw_only=True):
    """How memory ran out at the end of the run, and what would have made it fit."""

    device: str
    cause: str
    """``exception``, ``killed`` (by the kernel) or ``worker_killed``."""
    shortage: str = ""
    """``capacity`` or ``fragmentation``; empty for the host, where there is no such difference."""
    sentence: str
    evidence: str
    """When and how it was looked at."""
    error: str = ""
    """Type and message of the exception."""
    requested_bytes: int | None = None
    live_bytes: int | None = None
    """In tensors; on the host resident memory."""
    reserved_bytes: int | None = None
    free_bytes: int | None = None
    limit_bytes: int | None = None
    components: list[LiveRow] = []
    names: list[LiveRow] = []
    """What held it, the most first; no byte is counted twice."""
    fits_if: list[Advice] = []
    """What to do, the best first."""


class Slack(str, Enum):
    """What memory is that the allocator holds and no tensor uses."""

    TIDY = "tidy"
    CACHE = "cache"
    FRAGMENTATION = "fragmentation"
    BOTH = "both"


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of some segments."""

    segments: int = 0
    blocks: int = 0
    live_blocks: int = 0
    reserved: int = 0
    allocated: int = 0
    active: int = 0
    requested: int = 0
    pending: int = 0
    """Freed by the program, still in use on another stream."""
    cached: int = 0
    """In wholly free segments: ``empty_cache()`` returns it."""
    stuck: int = 0
    """In the holes of segments that are in use."""
    releasable: int = 0
    """The part of ``stuck`` that ``empty_cache()`` returns too: free pages of expandable ones."""
    holes: int = 0
    largest_hole: int = 0
    """The largest free block, cached ones included."""


class PoolFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of one pool: a free block serves requests of its own pool and stream alone."""

    stream: int
    pool: tuple[int, int]
    is_small: bool
    is_private: bool
    figures: Figures


class MapBlock(msgspec.Struct, frozen=True, array_like=True):
    """A block of the picture."""

    size: int
    kind: str
    """A class, or ``hole``."""


class MapSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of the picture; neighbours of one class are joined."""

    stream: int
    pool: tuple[int, int]
    is_small: bool
    size: int
    blocks: list[MapBlock]


class DeviceOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Live blocks under one name and of one component. Frames say who allocated, this who holds."""

    name: str
    """As a person would say it; empty where no name was found."""
    path: str
    role: str
    """A component (``parameters``, ``gradients``, ``optimizer_state``, …), or what only the
    allocator knows: ``workspace``, ``private_pool``, ``pending``, ``unexplained``."""
    bytes: int
    count: int
    """Blocks, each counted for all who have a part in it."""
    share: float
    """Of all that is live."""
    allocated_at: list[str] = []
    """The lines that allocated most of it, where stacks were recorded."""


class UnexplainedBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Live blocks of one size that nothing in Python holds."""

    size: int
    count: int
    bytes: int
    allocated_at: str = ""


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A device at the census at which most was live: its blocks joined with who holds them."""

    device: str
    boundary: int
    moment: str
    """When that was: ``after step 40 of train``."""
    figures: Figures
    peak_bytes: int | None = None
    """torch's own peak of live bytes until then."""
    outside_bytes: int | None = None
    """In use on the device beyond what torch reserves: context, libraries, other processes."""
    pinned_bytes: int | None = None
    """Page-locked host memory that torch owns."""
    roles: list[DeviceOwner] = []
    """What is live by component, the most first; they add up to all that is live."""
    owners: list[DeviceOwner] = []
    """What is live by name, the most first."""
    unexplained: list[UnexplainedBlocks] = []
    explained_share: float = 0.0
    """Part of the live bytes that a name or the allocator explains."""
    astray_bytes: int = 0
    """Storages on the device that lie in no block: memory of another allocator or process."""
    slack: Slack = Slack.TIDY
    slack_sentence: str = ""
    settings: list[Advice] = []
    """What each setting of the allocator would do, the helpful first."""
    pools: list[PoolFigures] = []
    memory_map: list[MapSegment] = []
    """Blocks are named by their roles, those of role ``cache`` as ``caches``: ``cache`` is free."""
    sees_libraries: bool = True
    """Whether the census walked what libraries hold too; otherwise that is unexplained."""
    left_out_blocks: int = 0
    """Blocks that were too many to be recorded: the picture and the owners lack them."""
