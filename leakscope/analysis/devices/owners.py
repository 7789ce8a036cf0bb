"""Who holds the live blocks of a device: names and components, and what only the allocator tells.

A storage that a census met says who holds its block. Of the others some are told by themselves:
frees that a stream waits for, workspaces of cuBLAS by their size or stack, private pools. What is
left is unexplained, and bounds what Python can't see: native code, other threads, C++ autograd.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from leakscope.analysis.cuda.classes import CUBLAS_WORKSPACE
from leakscope.analysis.cuda.sites import NATIVE, place_of
from leakscope.analysis.cuda.stack_kinds import kind_of
from leakscope.analysis.device_states import DeviceState
from leakscope.analysis.devices.joining import NOBODY, Span, Stored, join
from leakscope.model.allocator import DEFAULT_POOL, Block, BlockState, Segment
from leakscope.model.blocks import DeviceStorages
from leakscope.model.census import ROLES
from leakscope.model.device import DeviceOwner, UnexplainedBlocks
from leakscope.model.explanation import BlockClass

WORKSPACE, PRIVATE_POOL, PENDING = "workspace", "private_pool", "pending"
UNEXPLAINED = "unexplained"
LT_WORKSPACE = 32 << 20
MOST_LT_WORKSPACES = 4
"""cuBLAS takes so much from Hopper on, once a stream and thread. A tensor may have that size by
chance: more of them than this are none."""
SHOWN_OWNERS = 40
SHOWN_SIZES = 12
SHOWN_PLACES = 3


@dataclass(frozen=True)
class OwnedBlock:
    """A live block and the bytes of each who has a part in it, by role, path and name."""

    block: Block
    segment: Segment
    parts: dict[tuple[str, str, str], int]

    @property
    def role(self) -> str:
        """The role that has most of it."""
        return max(self.parts, key=lambda key: self.parts[key])[0] if self.parts else UNEXPLAINED


@dataclass(frozen=True)
class Ownership:
    """All live blocks of a device with who holds them."""

    blocks: list[OwnedBlock]
    astray: int


def find_owners(state: DeviceState) -> Ownership:
    """Return who holds the live blocks of a device."""
    live = [
        (block, segment)
        for segment in state.segments
        for block in segment.blocks
        if block.state is not BlockState.FREE
    ]
    told = state.record.storages or DeviceStorages(device=state.record.device)
    owners, stored = _stored(told)
    spans = [Span(block.address, block.size, block.requested) for block, _ in live]
    joined = join(spans, stored)
    spare_workspaces = _spare_workspaces(live, joined.parts)
    blocks = []
    for (block, segment), parts in zip(live, joined.parts, strict=True):
        role = _by_itself(block, segment, spare_workspaces)
        by_owner = {(role, "", "") if o == NOBODY else owners[o]: n for o, n in parts.items()}
        blocks.append(OwnedBlock(block, segment, by_owner))
    return Ownership(blocks, joined.astray)


def role_rows(blocks: Iterable[OwnedBlock]) -> list[DeviceOwner]:
    """Return live bytes by role, the most first."""
    return _rows(blocks, by_name=False)


def owner_rows(blocks: Iterable[OwnedBlock], most: int = SHOWN_OWNERS) -> list[DeviceOwner]:
    """Return live bytes by role and name, the most first."""
    return _rows(blocks, by_name=True)[:most]


def unexplained_rows(blocks: Iterable[OwnedBlock]) -> list[UnexplainedBlocks]:
    """Return the blocks that nothing explains, by size, the most bytes first."""
    groups: dict[int, list[tuple[int, Block]]] = defaultdict(list)
    for owned in blocks:
        for (role, _, _), size in owned.parts.items():
            if role == UNEXPLAINED:
                groups[owned.block.size].append((size, owned.block))
    rows = [
        UnexplainedBlocks(
            size=size,
            count=len(inside),
            bytes=sum(n for n, _ in inside),
            allocated_at=next(iter(_places(Counter(_place(b) for _, b in inside))), ""),
        )
        for size, inside in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.size))[:SHOWN_SIZES]


def unexplained_bytes(blocks: Iterable[OwnedBlock]) -> int:
    """Return the live bytes that nothing explains."""
    return sum(n for owned in blocks for key, n in owned.parts.items() if key[0] == UNEXPLAINED)


def _stored(told: DeviceStorages) -> tuple[list[tuple[str, str, str]], list[Stored]]:
    """Return the owners by number, and the storages with theirs."""
    numbers: dict[tuple[str, str, str], int] = {}
    stored = []
    for row in told.storages:
        known = 0 <= row.holder < len(told.holders)
        path, name = (
            (told.holders[row.holder].path, told.holders[row.holder].name)
            if known
            else (
                "",
                "",
            )
        )
        number = numbers.setdefault((row.role, path, name), len(numbers))
        rank = ROLES.index(row.role) if row.role in ROLES else len(ROLES)
        stored.append(Stored(row.address, row.bytes, rank, number))
    return list(numbers), stored


def _by_itself(block: Block, segment: Segment, has_workspaces: bool) -> str:
    """Return what a block is that no storage lies in."""
    if block.state is BlockState.PENDING:
        return PENDING
    if block.requested == CUBLAS_WORKSPACE or kind_of(block.stack) is BlockClass.WORKSPACE:
        return WORKSPACE
    if has_workspaces and block.requested == LT_WORKSPACE:
        return WORKSPACE
    return UNEXPLAINED if segment.pool == DEFAULT_POOL else PRIVATE_POOL


def _spare_workspaces(
    live: Sequence[tuple[Block, Segment]], parts: Sequence[dict[int, int]]
) -> bool:
    sizes = [b.requested for (b, _), p in zip(live, parts, strict=True) if set(p) == {NOBODY}]
    return sizes.count(LT_WORKSPACE) <= MOST_LT_WORKSPACES


@dataclass
class _Sum:
    bytes: int = 0
    count: int = 0
    places: Counter[str] = field(default_factory=Counter)


def _rows(blocks: Iterable[OwnedBlock], *, by_name: bool) -> list[DeviceOwner]:
    sums: dict[tuple[str, str, str], _Sum] = defaultdict(_Sum)
    for owned in blocks:
        place = _place(owned.block)
        for key, size in owned.parts.items():
            mine = sums[key if by_name else (key[0], "", "")]
            mine.bytes += size
            mine.count += 1
            mine.places[place] += size
    total = sum(mine.bytes for mine in sums.values()) or 1
    rows = [
        DeviceOwner(
            name=name,
            path=path,
            role=role,
            bytes=mine.bytes,
            count=mine.count,
            share=mine.bytes / total,
            allocated_at=_places(mine.places) if by_name else [],
        )
        for (role, path, name), mine in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.role, row.path))


def _place(block: Block) -> str:
    """Return the line that allocated a block; empty where none is known."""
    place = place_of(block.stack) if block.stack is not None else ""
    return "" if place == NATIVE else place


def _places(found: Counter[str]) -> list[str]:
    return [place for place, _ in found.most_common() if place][:SHOWN_PLACES]
