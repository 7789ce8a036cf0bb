"""torch's allocator on a device: segments and blocks as a snapshot file has them, and as they are
recorded.

A segment is what the allocator took from the driver; a block is a piece of it, live or free. A
stack is kept once however many blocks and entries it made, so stacks compare by identity.

Blocks lie one after another in their segment, so that only the segment says where. Addresses serve
to find a storage among the blocks of the same moment; they mean nothing at another.
"""

from __future__ import annotations

from enum import IntEnum
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
    """A piece of a segment; ``requested`` is what the program asked for."""

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
    """Bytes that the driver still had, told by ``oom`` alone."""
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
    """The releases of torch that write such a file, told by its keys."""
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
    """What the program asked for; 0 of a free block."""
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
