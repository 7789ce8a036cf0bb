"""The memory of one device at a moment, and what is concluded where memory ran out.

All sizes are bytes. ``requested`` is what the program asked for, ``allocated`` what the allocator
gave for it (rounded up), ``reserved`` what it took from the driver.
"""

from __future__ import annotations

from enum import Enum

import msgspec


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
    """A component (``parameters``, ``gradients``, ``optimizer_state``, …), or what the allocator
    alone tells: ``workspace``, ``private_pool``, ``pending``, ``unexplained``."""
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
