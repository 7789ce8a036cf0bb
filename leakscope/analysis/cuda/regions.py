"""The segments of a device while its history is played, and the blocks that lie in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from leakscope.model.allocator import (
    DEFAULT_POOL,
    UNKNOWN_POOL,
    Block,
    BlockState,
    Entry,
    Segment,
    Stack,
)

ROUNDING = 512
"""Blocks are multiples of it."""
UNSPLIT = 1 << 20
"""In a segment of large blocks, a rest of up to this stays part of the block before it."""
SMALL_SEGMENT = 2 << 20
_EXPANDING = ("segment_map", "segment_unmap")


@dataclass(slots=True)
class Held:
    """An allocation that is live at a moment: ``size`` is its block's where that is known."""

    requested: int
    state: BlockState
    stack: Stack | None
    size: int = 0
    born: int | None = None


@dataclass(frozen=True, slots=True)
class _Kind:
    """Whose memory a stretch is: only its own kind is ever taken from it."""

    stream: int
    pool: tuple[int, int]
    is_small: bool
    is_expandable: bool


@dataclass(frozen=True, slots=True)
class _Region:
    start: int
    end: int
    kind: _Kind


class MapOfMemory:
    """Which stretches of address space a device holds from the driver."""

    def __init__(self, device: int, segments: Collection[Segment]) -> None:
        self.device = device
        self._regions: dict[int, _Region] = {}
        self._starts_by_end: dict[int, int] = {}
        for segment in segments:
            self._keep(_region(segment))
        self._kinds = sorted(self._regions.values(), key=lambda region: region.start)
        self._starts = [region.start for region in self._kinds]

    def apply(self, entry: Entry, gains: Collection[str], losses: Collection[str]) -> None:
        """Take in what an entry gains or loses; the undoing of an entry swaps the two."""
        if entry.action in gains:
            self._add(entry)
        elif entry.action in losses:
            self._remove(entry.address, entry.address + entry.size)

    def segments(self, held: Mapping[int, Held]) -> list[Segment]:
        """Return the segments with the live blocks and the holes between them."""
        regions = sorted(self._regions.values(), key=lambda region: region.start)
        starts = [region.start for region in regions]
        inside: list[list[int]] = [[] for _ in regions]
        astray: list[int] = []
        for address in sorted(held):
            place = bisect_right(starts, address) - 1
            fits = place >= 0 and address < regions[place].end
            (inside[place] if fits else astray).append(address)
        found = [
            self._segment(region, addresses, held)
            for region, addresses in zip(regions, inside, strict=True)
        ]
        # Only a damaged history has live blocks outside of any segment.
        return found + [self._stray(address, held[address]) for address in astray]

    def _add(self, entry: Entry) -> None:
        start, end = entry.address, entry.address + entry.size
        kind = self._kind_at(entry)
        if kind.is_expandable:
            before = self._regions.get(self._starts_by_end.get(start, -1))
            after = self._regions.get(end)
            if before is not None and before.kind == kind and before.end == start:
                start = before.start
            if after is not None and after.kind == kind:
                del self._regions[after.start]
                end = after.end
        self._keep(_Region(start, end, kind))

    def _remove(self, start: int, end: int) -> None:
        known = self._regions.get(start)
        if known is not None and known.end == end:
            del self._regions[start]
            return
        for region in [r for r in self._regions.values() if r.start < end and start < r.end]:
            del self._regions[region.start]
            if region.start < start:
                self._keep(replace(region, end=start))
            if end < region.end:
                self._keep(replace(region, start=end))

    def _keep(self, region: _Region) -> None:
        self._regions[region.start] = region
        self._starts_by_end[region.end] = region.start

    def _kind_at(self, entry: Entry) -> _Kind:
        expandable = entry.action in _EXPANDING
        place = bisect_right(self._starts, entry.address) - 1
        at_the_end = self._kinds[place] if place >= 0 else None
        if at_the_end is not None and entry.address < at_the_end.end:
            kind = at_the_end.kind
            if (kind.stream, kind.is_expandable) == (entry.stream, expandable):
                return kind
        # Expandable segments grow in steps of 2 MiB for small and 20 MiB for large blocks.
        is_small = entry.size == SMALL_SEGMENT
        return _Kind(entry.stream, entry.pool or DEFAULT_POOL, is_small, expandable)

    def _segment(self, region: _Region, addresses: list[int], held: Mapping[int, Held]) -> Segment:
        blocks: list[Block] = []
        end = region.start
        for place, address in enumerate(addresses):
            if address > end:
                blocks.append(Block(end, address - end, 0, BlockState.FREE))
            beyond = addresses[place + 1] if place + 1 < len(addresses) else region.end
            blocks.append(_block(address, held[address], beyond, region.kind))
            end = address + blocks[-1].size
        if end < region.end:
            blocks.append(Block(end, region.end - end, 0, BlockState.FREE))
        return _totalled(self.device, region, blocks)

    def _stray(self, address: int, held: Held) -> Segment:
        size = held.size or _rounded(held.requested)
        kind = _Kind(0, UNKNOWN_POOL, False, False)
        block = Block(address, size, held.requested, held.state, held.stack, held.born)
        return _totalled(self.device, _Region(address, address, kind), [block])


def _region(segment: Segment) -> _Region:
    kind = _Kind(segment.stream, segment.pool, segment.is_small, segment.is_expandable)
    return _Region(segment.address, segment.address + segment.size, kind)


def _block(address: int, held: Held, beyond: int, kind: _Kind) -> Block:
    size = held.size or _rounded(held.requested)
    rest = beyond - address - size
    keeps_rest = not held.size and not kind.is_small and not kind.is_expandable
    if rest < 0 or (keeps_rest and rest <= UNSPLIT):
        size += rest
    return Block(address, size, held.requested, held.state, held.stack, held.born)


def _totalled(device: int, region: _Region, blocks: list[Block]) -> Segment:
    live = [block for block in blocks if block.state is not BlockState.FREE]
    return Segment(
        device=device,
        address=region.start,
        size=region.end - region.start,
        stream=region.kind.stream,
        pool=region.kind.pool,
        is_small=region.kind.is_small,
        is_expandable=region.kind.is_expandable,
        blocks=blocks,
        allocated=sum(b.size for b in live if b.state is BlockState.ALLOCATED),
        active=sum(block.size for block in live),
        requested=sum(block.requested for block in live),
    )


def _rounded(requested: int) -> int:
    return max(ROUNDING, -(-requested // ROUNDING) * ROUNDING)
