"""Segments and what lies in them, joined where neighbours are of one class: a map of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leakscope.analysis.cuda.figures import pool_key
from leakscope.model.allocator import BlockState, Segment
from leakscope.model.device import MapBlock, MapSegment

HOLE = "hole"
CACHE = "cache"
MOST_SEGMENTS = 4000


def memory_map(segments: Sequence[Segment], kinds: Mapping[int, str]) -> list[MapSegment]:
    """Return the segments by stream and pool, the largest first within each.

    Args:
        segments: the state of one device.
        kinds: what each live block is for, by the identity of the block.

    """
    ordered = sorted(segments, key=lambda s: (pool_key(s)[:2], s.is_small, -s.size, s.address))
    return [_mapped(segment, kinds) for segment in ordered[:MOST_SEGMENTS]]


def _mapped(segment: Segment, kinds: Mapping[int, str]) -> MapSegment:
    is_cache = all(block.state is BlockState.FREE for block in segment.blocks)
    runs: list[tuple[int, str]] = []
    for block in segment.blocks:
        kind = kinds.get(id(block), CACHE if is_cache else HOLE)
        if runs and runs[-1][1] == kind:
            runs[-1] = (runs[-1][0] + block.size, kind)
        else:
            runs.append((block.size, kind))
    return MapSegment(
        stream=segment.stream,
        pool=segment.pool,
        is_small=segment.is_small,
        size=segment.size,
        blocks=[MapBlock(size, kind) for size, kind in runs],
    )
