"""Segments of the allocator: live, cached and stuck bytes, holes, and the map of memory.

Cache is harmless unless somebody else needs it; stuck bytes lie in holes between live blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from leakscope.analysis.growth import policy
from leakscope.model.device import (
    DEFAULT_POOL,
    Advice,
    Block,
    BlockState,
    Figures,
    MapBlock,
    MapSegment,
    PoolFigures,
    Segment,
    SegmentRow,
    Slack,
    Stack,
    StackFrame,
    whole_pages,
)
from leakscope.model.record import BlockListRecord
from leakscope.model.run import Recording
from leakscope.model.text import human_bytes, human_share

MIB = 1 << 20
SPLIT_SIZES = tuple(size * MIB for size in (512, 256, 128, 64, 32))
"""Values of ``max_split_size_mb`` that are tried."""


def kind_of_slack(figures: Figures) -> Slack:
    """Return whether reserved memory without tensors is cache, holes, both or too little."""
    harmless = max(policy.COSTLY_BYTES, policy.HARMLESS_SHARE * figures.reserved)
    is_cache, is_stuck = returnable(figures) >= harmless, _is_fragmented(figures)
    if is_cache and is_stuck:
        return Slack.BOTH
    if is_stuck:
        return Slack.FRAGMENTATION
    return Slack.CACHE if is_cache else Slack.TIDY


def returnable(figures: Figures) -> int:
    """Return the bytes that ``empty_cache()`` would give back to the driver."""
    return figures.cached + figures.releasable


def fixed(figures: Figures) -> int:
    """Return the bytes in holes that nothing releases while their neighbours live."""
    return figures.stuck - figures.releasable


def pages_in_holes(segments: Sequence[Segment]) -> int:
    """Return how much of the stuck bytes would be whole pages if segments were expandable."""
    return sum(
        _free_pages(segment)
        for segment in segments
        if not segment.is_expandable and len(free_blocks(segment)) < len(segment.blocks)
    )


def free_blocks(segment: Segment) -> list[Block]:
    """Return the blocks of a segment that nobody has."""
    return [block for block in segment.blocks if block.state is BlockState.FREE]


def _free_pages(segment: Segment) -> int:
    return sum(
        whole_pages(block.address - segment.address, block.size, is_small=segment.is_small)
        for block in free_blocks(segment)
    )


def slack_sentence(figures: Figures, peak: Figures | None) -> str:
    """Return what the unused memory is, in a sentence or two."""
    unused = figures.reserved - figures.active
    if unused <= 0:
        return "Every reserved byte is in use."
    sentence = (
        f"Of {human_bytes(figures.reserved)} reserved, {human_bytes(unused)} are in no tensor: "
        f"{human_bytes(returnable(figures))} are cache that empty_cache() returns, "
        f"{human_bytes(fixed(figures))} are stuck in holes between live blocks, "
        f"the largest free block {human_bytes(figures.largest_hole)}."
    )
    is_filled = peak is not None and is_filled_at(peak)
    if is_filled and peak and fixed(figures) > policy.LITTLE_SHARE * peak.reserved:
        sentence += (
            f" At the peak {human_share(peak.active / peak.reserved)} of the reserved memory was "
            "live: the next step fills these holes again."
        )
    return sentence


def is_filled_at(peak: Figures) -> bool:
    """Return whether nearly all reserved memory was live at the peak."""
    return peak.reserved > 0 and peak.active >= (1 - policy.LITTLE_SHARE) * peak.reserved


def settings_advice(
    segments: Sequence[Segment],
    figures: Figures,
    peak: Figures | None,
    settings: Mapping[str, str],
    *,
    is_steady: bool,
) -> list[Advice]:
    """Return what each setting of the allocator would do here, the helpful first.

    ``figures`` are the sums of the segments, ``peak`` those at the peak, where the trace tells
    them; ``is_steady`` says that a later step needs no more than the peak of this trace.
    """
    if kind_of_slack(figures) is Slack.TIDY:
        return []
    advice = [
        _expandable(segments, figures, peak, settings),
        _max_split(segments, figures, settings),
        _empty_cache(figures, peak, is_steady=is_steady),
        _collection(figures, settings),
    ]
    return sorted(advice, key=lambda item: not item.helps)


def _expandable(
    segments: Sequence[Segment],
    figures: Figures,
    peak: Figures | None,
    settings: Mapping[str, str],
) -> Advice:
    title = "expandable_segments:True"
    if settings.get("expandable_segments") == "True" or all(s.is_expandable for s in segments):
        return Advice(title=title, helps=False, evidence="It is on already.", bytes=0)
    pages = pages_in_holes(segments)
    evidence = (
        f"{human_bytes(pages)} of the {human_bytes(fixed(figures))} stuck in holes are whole "
        "pages, which such segments give back or use elsewhere."
    )
    if peak is not None and peak.reserved > peak.active:
        evidence += (
            f" At the peak it would save {human_bytes(peak.reserved - peak.active)} at most."
        )
    return Advice(title=title, helps=_reaches(pages, figures), evidence=evidence, bytes=pages)


def _max_split(
    segments: Sequence[Segment], figures: Figures, settings: Mapping[str, str]
) -> Advice:
    if settings.get("max_split_size", "-1") not in ("-1", "0", ""):
        setting = settings["max_split_size"]
        evidence = f"It is set already, to {setting} bytes."
        return Advice(title="max_split_size_mb", helps=False, evidence=evidence, bytes=0)
    reached = {size: _kept_whole(segments, size) for size in SPLIT_SIZES}
    most = max(reached.values())
    # The largest size that still reaches most: the fewer blocks are spared from splitting, the
    # more of the cache stays useful.
    best = next(size for size in SPLIT_SIZES if reached[size] >= 0.8 * most)
    evidence = (
        f"{human_bytes(reached[best])} of the stuck bytes lie in segments of more than "
        f"{human_bytes(best)} that smaller blocks split. Set it or expandable_segments, not both."
        if most
        else "The stuck bytes lie in segments too small for it."
    )
    return Advice(
        title=f"max_split_size_mb:{best // MIB}" if most else "max_split_size_mb",
        helps=_reaches(reached[best], figures),
        evidence=evidence,
        bytes=reached[best],
    )


def _empty_cache(figures: Figures, peak: Figures | None, *, is_steady: bool) -> Advice:
    free = returnable(figures)
    evidence = f"At this moment it returns {human_bytes(free)} to the driver"
    evidence += f" and leaves {human_bytes(fixed(figures))} in holes." if fixed(figures) else "."
    spare = free
    if not is_steady:
        spare = 0
        evidence += (
            " The optimizer's state is new here, so what a later step needs isn't in this history."
        )
    elif peak is not None:
        spare = max(0, min(free, figures.reserved - peak.active))
        evidence += (
            f" The peak of {human_bytes(peak.active)} takes {human_bytes(free - spare)} of it "
            "back when it comes again, so that much helps other processes alone."
        )
    return Advice(
        title="torch.cuda.empty_cache()",
        helps=spare >= max(policy.COSTLY_BYTES, policy.HARMLESS_SHARE * figures.reserved),
        evidence=evidence,
        bytes=free,
    )


def _collection(figures: Figures, settings: Mapping[str, str]) -> Advice:
    title, amount = "garbage_collection_threshold", figures.cached
    evidence = (
        "It returns wholly free segments alone, and only near the limit of the device: "
        f"{human_bytes(amount)} here, nothing of what is stuck."
    )
    if settings.get(title, "0.0") not in ("0.0", "0", ""):
        amount, evidence = 0, f"It is set already, to {settings[title]}."
    return Advice(title=title, helps=False, evidence=evidence, bytes=amount)


def _kept_whole(segments: Sequence[Segment], size: int) -> int:
    """Return the stuck bytes in segments that are larger than ``size`` and hold smaller blocks."""
    return sum(
        block.size
        for segment in segments
        if segment.size > size and not segment.is_expandable and _is_split_small(segment, size)
        for block in free_blocks(segment)
    )


def _is_split_small(segment: Segment, size: int) -> bool:
    live = [block.size for block in segment.blocks if block.state is not BlockState.FREE]
    return bool(live) and max(live) <= size


def _reaches(amount: int, figures: Figures) -> bool:
    considerable = max(policy.COSTLY_BYTES, policy.CONSIDERABLE_SHARE * fixed(figures))
    return _is_fragmented(figures) and amount >= considerable


def _is_fragmented(figures: Figures) -> bool:
    return fixed(figures) >= max(policy.COSTLY_BYTES, policy.LITTLE_SHARE * figures.reserved)


PoolKey: TypeAlias = "tuple[int, tuple[int, int], bool]"


def figures_of(segments: Iterable[Segment]) -> Figures:
    """Return the sums of some segments: torch's own totals, and cached and stuck from the blocks.

    Reserved minus allocated is no fragmentation: wholly free segments are cache. The holes of an
    expandable segment are stuck only as far as they don't cover whole pages.
    """
    sums = dict.fromkeys(Figures.__struct_fields__, 0)
    for segment in segments:
        free = [block.size for block in free_blocks(segment)]
        live = len(segment.blocks) - len(free)
        sums["segments"] += 1
        sums["blocks"] += len(segment.blocks)
        sums["live_blocks"] += live
        sums["reserved"] += segment.size
        sums["allocated"] += segment.allocated
        sums["active"] += segment.active
        sums["requested"] += segment.requested
        sums["pending"] += sum(b.size for b in segment.blocks if b.state is BlockState.PENDING)
        sums["holes"] += len(free)
        sums["largest_hole"] = max([sums["largest_hole"], *free])
        sums["stuck" if live else "cached"] += sum(free)
        sums["releasable"] += _free_pages(segment) if live and segment.is_expandable else 0
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
    names = Figures.__struct_fields__
    sums = {name: sum(getattr(part, name) for part in figures) for name in names}
    sums["largest_hole"] = max((part.largest_hole for part in figures), default=0)
    return Figures(**sums)


HOLE = "hole"
CACHE = "cache"
MOST_SEGMENTS = 4000


def memory_map(segments: Sequence[Segment], kinds: Mapping[int, str]) -> list[MapSegment]:
    """Return the segments of one device by stream and pool, the largest first within each;
    ``kinds`` has what each live block is for, by the identity of the block.
    """
    ordered = sorted(segments, key=lambda s: (pool_key(s)[:2], s.is_small, -s.size, s.address))
    return [_mapped(segment, kinds) for segment in ordered[:MOST_SEGMENTS]]


def _mapped(segment: Segment, kinds: Mapping[int, str]) -> MapSegment:
    unused = HOLE if len(free_blocks(segment)) < len(segment.blocks) else CACHE
    runs = groupby(segment.blocks, lambda block: kinds.get(id(block), unused))
    return MapSegment(
        stream=segment.stream,
        pool=segment.pool,
        is_small=segment.is_small,
        size=segment.size,
        blocks=[MapBlock(sum(block.size for block in run), kind) for kind, run in runs],
    )


_KNOWN_STATES = frozenset(BlockState)


@dataclass(frozen=True)
class DeviceState:
    """One device at the moment of a list."""

    record: BlockListRecord
    segments: list[Segment]
    figures: Figures


def highest_states(recording: Recording) -> dict[str, DeviceState]:
    """Return each device at the list with most live bytes; of equals the latest."""
    found: dict[str, DeviceState] = {}
    for record in recording.block_lists:
        state = state_of(record)
        known = found.get(record.device)
        if known is None or state.figures.active >= known.figures.active:
            found[record.device] = state
    return dict(sorted(found.items()))


def state_of(record: BlockListRecord) -> DeviceState:
    """Return a device at the moment of a list."""
    stacks = [
        Stack(tuple(StackFrame(f.file, f.line, f.name) for f in rows)) for rows in record.stacks
    ]
    number = record.device.rpartition(":")[2]
    device = int(number) if number.isascii() and number.isdigit() else 0
    segments = [_segment(row, device, stacks) for row in record.segments]
    return DeviceState(record, segments, figures_of(segments))


def _segment(row: SegmentRow, device: int, stacks: list[Stack]) -> Segment:
    blocks, address = [], row.address
    for block in row.blocks:
        stack = stacks[block.stack] if 0 <= block.stack < len(stacks) else None
        state = BlockState(block.state) if block.state in _KNOWN_STATES else BlockState.ALLOCATED
        blocks.append(Block(address, block.size, block.requested, state, stack))
        address += block.size
    where = (device, row.address, row.size, row.stream, row.pool)
    return Segment(*where, row.is_small, row.is_expandable, blocks, *sums_of(blocks))


def sums_of(blocks: Sequence[Block]) -> tuple[int, int, int]:
    """Return what a segment has allocated, active and requested, by its blocks."""
    live = [block for block in blocks if block.state is not BlockState.FREE]
    allocated = sum(b.size for b in live if b.state is BlockState.ALLOCATED)
    return allocated, sum(block.size for block in live), sum(block.requested for block in live)
