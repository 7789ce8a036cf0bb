"""What segments add up to: live, cached and stuck bytes, and the largest hole of each pool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from leakscope.model.allocator import DEFAULT_POOL, BlockState, Segment, whole_pages
from leakscope.model.device import Figures, PoolFigures

PoolKey: TypeAlias = "tuple[int, tuple[int, int], bool]"


def figures_of(segments: Iterable[Segment]) -> Figures:
    """Return the sums of some segments: torch's own totals, and cached and stuck from the blocks.

    Reserved minus allocated is no fragmentation: wholly free segments are cache. The holes of an
    expandable segment are stuck only as far as they don't cover whole pages.
    """
    sums = dict.fromkeys(Figures.__struct_fields__, 0)
    for segment in segments:
        sums["segments"] += 1
        sums["blocks"] += len(segment.blocks)
        sums["reserved"] += segment.size
        sums["allocated"] += segment.allocated
        sums["active"] += segment.active
        sums["requested"] += segment.requested
        _add_blocks(segment, sums)
    return Figures(**sums)


def pools_of(segments: Iterable[Segment]) -> list[PoolFigures]:
    """Return the sums of each stream and pool, the largest first."""
    members: dict[PoolKey, list[Segment]] = {}
    for segment in segments:
        members.setdefault(pool_key(segment), []).append(segment)
    pools = [
        PoolFigures(
            stream=stream,
            pool=pool,
            is_small=is_small,
            is_private=pool != DEFAULT_POOL,
            figures=figures_of(inside),
        )
        for (stream, pool, is_small), inside in members.items()
    ]
    return sorted(pools, key=lambda pool: (-pool.figures.reserved, pool.stream, pool.pool))


def pool_key(segment: Segment) -> PoolKey:
    """Return what a request must share with a segment to be served from it."""
    return (segment.stream, segment.pool, segment.is_small)


def total_of(figures: Sequence[Figures]) -> Figures:
    """Return the sums of several devices; the largest hole is the largest of any."""
    sums = {
        name: sum(getattr(part, name) for part in figures) for name in Figures.__struct_fields__
    }
    sums["largest_hole"] = max((part.largest_hole for part in figures), default=0)
    return Figures(**sums)


def _add_blocks(segment: Segment, sums: dict[str, int]) -> None:
    live = free = pages = 0
    for block in segment.blocks:
        if block.state is BlockState.FREE:
            free += block.size
            sums["largest_hole"] = max(sums["largest_hole"], block.size)
            if segment.is_expandable:
                offset = block.address - segment.address
                pages += whole_pages(offset, block.size, is_small=segment.is_small)
            sums["holes"] += 1
            continue
        live += 1
        if block.state is BlockState.PENDING:
            sums["pending"] += block.size
    sums["live_blocks"] += live
    if live:
        sums["stuck"] += free
        sums["releasable"] += pages
    else:
        sums["cached"] += free
