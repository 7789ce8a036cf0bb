"""Device memory of a recorded run: the allocator's blocks joined with who holds them.

Tensor storages are matched with blocks by address; the rest by its stack. Block lists of
comparable boundaries make the series by which a device is judged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from leakscope.analysis.allocator.classes import CUBLAS_WORKSPACE, NATIVE, kind_of, line_of
from leakscope.analysis.allocator.segments import (
    DeviceState,
    kind_of_slack,
    memory_map,
    pools_of,
    settings_advice,
    slack_sentence,
)
from leakscope.analysis.columns.series import INNER, FloatArray
from leakscope.analysis.columns.units import is_training
from leakscope.analysis.run_context import RunContext
from leakscope.model import gauge
from leakscope.model.boundary import Boundary, comparable_key
from leakscope.model.census import ROLES, CensusScope
from leakscope.model.device import (
    DEFAULT_POOL,
    Block,
    BlockState,
    DeviceMemory,
    DeviceOwner,
    DeviceStorages,
    Figures,
    Segment,
    UnexplainedBlocks,
)
from leakscope.model.explanation import BlockClass
from leakscope.model.record import DeviceSnapshotRecord

STEADY_STEPS = 2
"""From the second step on an optimizer's state is there, and later steps need no more."""
_WHEN = {
    "run_begin": "at the beginning",
    "run_end": "at the end",
    "phase_begin": "at the begin of {phase}",
    "phase_end": "at the end of {phase}",
    "step": "after step {step} of {phase}",
    "batch": "after batch {batch} of {phase}",
    "epoch_end": "at the end of epoch {epoch}",
    "mark": "at the mark {label}",
    "request": "on request",
}


def find_devices(case: RunContext) -> list[DeviceMemory]:
    """Return each device at the recorded list of blocks with most live bytes."""
    return [_device(case, state) for state in case.device_states.values()]


def _device(case: RunContext, state: DeviceState) -> DeviceMemory:
    record, figures = state.record, state.figures
    found = find_owners(state)
    position = _position(case, record.boundary)
    boundary = case.track.boundaries[position] if position is not None else None
    peak = peak_figures(case, record.device, figures)
    left = unexplained_bytes(found.blocks)
    relative = case.sources.files.relative
    census = None if position is None else case.track.measurements[position].census
    return DeviceMemory(
        device=record.device,
        boundary=record.boundary,
        moment=_moment(boundary),
        figures=figures,
        peak_bytes=None if peak is None else peak.active,
        outside_bytes=_reading(case, f"{record.device}.{gauge.DEVICE_OUTSIDE}", position),
        pinned_bytes=_reading(case, gauge.PINNED_HOST, position),
        roles=owner_rows(found.blocks, by_name=False),
        owners=[
            msgspec.structs.replace(row, allocated_at=[*map(relative, row.allocated_at)])
            for row in owner_rows(found.blocks, by_name=True)
        ],
        unexplained=[
            msgspec.structs.replace(
                row, allocated_at=row.allocated_at and relative(row.allocated_at)
            )
            for row in unexplained_rows(found.blocks)
        ],
        explained_share=1.0 - left / figures.active if figures.active else 1.0,
        astray_bytes=found.astray,
        slack=kind_of_slack(figures),
        slack_sentence=slack_sentence(figures, peak),
        settings=settings_advice(
            state.segments,
            figures,
            peak,
            record.settings,
            is_steady=boundary is not None and boundary.step >= STEADY_STEPS,
        ),
        pools=pools_of(state.segments),
        memory_map=memory_map(
            state.segments,
            {id(o.block): ("caches" if o.role == "cache" else o.role) for o in found.blocks},
        ),
        sees_libraries=census is None or census.scope is CensusScope.FULL,
        left_out_blocks=record.left_out,
    )


def _position(case: RunContext, index: int) -> int | None:
    found = (case.track.index == index).nonzero()[0]
    return int(found[0]) if len(found) else None


def _reading(case: RunContext, name: str, position: int | None) -> int | None:
    value = None if position is None else case.nearest(name, position)
    return None if value is None else int(value)


def _moment(boundary: Boundary | None) -> str:
    if boundary is None:
        return "at a boundary that was lost"
    return _WHEN[boundary.kind.value].format(
        phase=boundary.phase or "the run",
        step=boundary.step,
        batch=boundary.batch,
        epoch=boundary.epoch + 1,
        label=boundary.label,
    )


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
    parts: dict[tuple[str, str, str], int]

    @property
    def role(self) -> str:
        """The role that has most of it."""
        return max(self.parts, key=lambda key: self.parts[key])[0] if self.parts else UNEXPLAINED


class BlockOwnership(NamedTuple):
    """All live blocks of a device with who holds them."""

    blocks: list[OwnedBlock]
    astray: int


def find_owners(state: DeviceState) -> BlockOwnership:
    """Return the holders of the live blocks of a device."""
    live = [
        (block, segment)
        for segment in state.segments
        for block in segment.blocks
        if block.state is not BlockState.FREE
    ]
    storages = state.record.storages or DeviceStorages(device=state.record.device)
    owners, stored = _stored(storages)
    joined = join([block for block, _ in live], stored)
    unowned = [
        b.requested for (b, _), p in zip(live, joined.parts, strict=True) if [*p] == [NO_OWNER]
    ]
    spare_workspaces = unowned.count(LT_WORKSPACE) <= MOST_LT_WORKSPACES
    blocks = []
    for (block, segment), parts in zip(live, joined.parts, strict=True):
        role = _by_itself(block, segment, spare_workspaces)
        by_owner = {(role, "", "") if o == NO_OWNER else owners[o]: n for o, n in parts.items()}
        blocks.append(OwnedBlock(block, by_owner))
    return BlockOwnership(blocks, joined.astray)


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
            allocated_at=next(iter(_top_lines(Counter(_line_of_block(b) for _, b in inside))), ""),
        )
        for size, inside in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.size))[:SHOWN_SIZES]


def unexplained_bytes(blocks: Iterable[OwnedBlock]) -> int:
    """Return the live bytes that nothing explains."""
    return sum(n for owned in blocks for key, n in owned.parts.items() if key[0] == UNEXPLAINED)


def _stored(storages: DeviceStorages) -> tuple[list[tuple[str, str, str]], list[StorageSpan]]:
    """Return the owners by number, and the storages with theirs."""
    numbers: dict[tuple[str, str, str], int] = {}
    stored = []
    for row in storages.storages:
        path = name = ""
        if 0 <= row.holder < len(storages.holders):
            path, name = storages.holders[row.holder].path, storages.holders[row.holder].name
        number = numbers.setdefault((row.role, path, name), len(numbers))
        rank = ROLES.index(row.role) if row.role in ROLES else len(ROLES)
        stored.append(StorageSpan(row.address, row.bytes, rank, number))
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


@dataclass
class _Sum:
    bytes: int = 0
    count: int = 0
    places: Counter[str] = field(default_factory=Counter)


def owner_rows(blocks: Iterable[OwnedBlock], *, by_name: bool) -> list[DeviceOwner]:
    """Return live bytes by role, or by role and name, the most first."""
    sums: dict[tuple[str, str, str], _Sum] = defaultdict(_Sum)
    for owned in blocks:
        place = _line_of_block(owned.block)
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
            allocated_at=_top_lines(mine.places) if by_name else [],
        )
        for (role, path, name), mine in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.role, row.path))[:SHOWN_OWNERS]


def _line_of_block(block: Block) -> str:
    place = line_of(block.stack) if block.stack is not None else ""
    return "" if place == NATIVE else place


def _top_lines(found: Counter[str]) -> list[str]:
    return [place for place, _ in found.most_common() if place][:SHOWN_PLACES]


NO_OWNER = -1


class StorageSpan(NamedTuple):
    """A storage: where it lies, and whose it is. Of the ranks 0 is the best."""

    start: int
    size: int
    rank: int
    owner: int


class StorageJoin(NamedTuple):
    """The bytes of each block by owner, what nobody owns under :data:`NOBODY`."""

    parts: list[dict[int, int]]
    astray: int
    """Bytes of storages that begin in no live block."""


def join(blocks: Sequence[Block], storages: Sequence[StorageSpan]) -> StorageJoin:
    """Return the owners of each block's bytes; blocks don't overlap.

    What the allocator has added by rounding up is the block's largest owner's.
    """
    order = sorted(range(len(blocks)), key=lambda number: blocks[number].address)
    starts = [blocks[number].address for number in order]
    inside: dict[int, list[StorageSpan]] = defaultdict(list)
    astray = 0
    for storage in storages:
        place = bisect_right(starts, storage.start) - 1
        if place >= 0 and storage.start < starts[place] + blocks[order[place]].size:
            inside[order[place]].append(storage)
        else:
            astray += storage.size
    parts = [_divided(block, inside.get(number, ())) for number, block in enumerate(blocks)]
    return StorageJoin(parts, astray)


def _divided(block: Block, storages: Sequence[StorageSpan]) -> dict[int, int]:
    parts: dict[int, int] = defaultdict(int)
    rounding = 0
    end, requested_end = block.address + block.size, block.address + block.requested
    edges = {block.address, end, min(requested_end, end)}
    edges |= {min(edge, end) for s in storages for edge in (s.start, s.start + s.size)}
    waiting = sorted(storages, reverse=True)
    covering: list[tuple[int, int, int, int, int]] = []
    for left, right in pairwise(sorted(edges)):
        while waiting and waiting[-1].start <= left:
            s = waiting.pop()
            heappush(covering, (s.rank, -s.size, s.start, s.owner, s.start + s.size))
        while covering and covering[0][-1] <= left:
            heappop(covering)
        if covering:
            parts[covering[0][-2]] += right - left
        elif left >= requested_end:
            rounding += right - left
        else:
            parts[NO_OWNER] += right - left
    owners = [owner for owner in parts if owner != NO_OWNER]
    parts[max(owners, key=lambda owner: (parts[owner], -owner), default=NO_OWNER)] += rounding
    return {owner: size for owner, size in parts.items() if size}


@dataclass(frozen=True)
class DeviceSeries:
    """The summaries of one device's blocks at the boundaries of one kind that have most of them."""

    done: FloatArray
    """Units of work done at each."""
    snapshots: list[DeviceSnapshotRecord]

    def of(self, field: str) -> FloatArray:
        """Return one sum at each boundary, in bytes."""
        return np.array([getattr(s, field) for s in self.snapshots], dtype=np.float64)

    def stuck(self) -> FloatArray:
        """Return the bytes in holes that nothing releases, at each boundary."""
        return self.of("stuck") - self.of("releasable")

    def gain(self, field: str) -> float:
        """Return the change of one sum from the first to the last."""
        values = self.of(field)
        return float(values[-1] - values[0]) if len(values) else 0.0

    @property
    def last(self) -> DeviceSnapshotRecord | None:
        """The latest of them."""
        return self.snapshots[-1] if self.snapshots else None


def device_series(case: RunContext, device: str) -> DeviceSeries:
    """Return the summaries of a device's blocks at comparable boundaries; empty without any."""
    groups: dict[tuple[str, str, str], list[tuple[int, DeviceSnapshotRecord]]] = {}
    for position, measurement in enumerate(case.track.measurements):
        found = next((s for s in measurement.devices if s.device == device), None)
        if found is not None and _is_comparable(case, position):
            key = comparable_key(measurement.boundary)
            groups.setdefault(key, []).append((position, found))
    chosen = max(groups.values(), key=len, default=[])
    at = [position for position, _ in chosen]
    return DeviceSeries(case.unit.done[at], [snapshot for _, snapshot in chosen])


def has_risen_by(case: RunContext, device: str, name: str) -> float:
    """Return the change of a device's gauge over the window, 0 where it was not read."""
    return case.gauge_gain(f"{device}.{name}") or 0.0


def latest(case: RunContext, device: str, name: str) -> float:
    """Return the last reading of a device's gauge, 0 where it was not read."""
    return case.nearest(f"{device}.{name}", len(case.track) - 1) or 0.0


@dataclass(frozen=True)
class OutsideOwner:
    """Who has device memory that is not torch's allocator's, by the driver."""

    gauge: str
    name: str
    gained: int
    used: int


_OUTSIDE = {
    gauge.DEVICE_OWN_OUTSIDE: "this process",
    gauge.DEVICE_CHILDREN: "child processes",
    gauge.DEVICE_OTHERS: "other processes",
}


def outside_owners(case: RunContext, device: str) -> list[OutsideOwner]:
    """Return whose the memory outside torch's allocator is; empty where the driver didn't say."""
    return [
        OutsideOwner(
            its, name, round(has_risen_by(case, device, its)), round(latest(case, device, its))
        )
        for its, name in _OUTSIDE.items()
        if case.track.has_gauge(f"{device}.{its}")
    ]


def private_growth(case: RunContext, device: str) -> float:
    """Return the growth of private pools, by torch's own count or else by the block lists."""
    if case.track.has_gauge(f"{device}.{gauge.DEVICE_PRIVATE}"):
        return has_risen_by(case, device, gauge.DEVICE_PRIVATE)
    return device_series(case, device).gain("private")


def peak_figures(case: RunContext, device: str, figures: Figures) -> Figures | None:
    """Return what is known of the peak: torch's own, and what is reserved."""
    peak = case.nearest(f"{device}.{gauge.DEVICE_PEAK}", len(case.track) - 1)
    if peak is None or peak < figures.allocated:
        return None
    return Figures(active=int(peak), allocated=int(peak), reserved=figures.reserved)


def _is_comparable(case: RunContext, position: int) -> bool:
    """Batches differ in how far their phase has come, unless there is but one long phase."""
    track = case.track
    phase = track.boundaries[position].phase
    once = track.begun(phase) <= 1 and is_training(phase)
    return bool(track.kind[position] not in INNER or once)
