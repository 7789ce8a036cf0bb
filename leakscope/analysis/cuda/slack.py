"""Memory that the allocator holds and no tensor uses: cache, or holes that nothing can take.

Cache is harmless unless somebody else needs it. Stuck bytes lie in holes between live blocks. Both
are judged at a moment, and then against the peak: holes that the next step fills again, as it did
before, are the price of its peak rather than of the allocator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leakscope.model.allocator import BlockState, Segment, whole_pages
from leakscope.model.device import Figures, Slack
from leakscope.model.shortage import Advice
from leakscope.model.sizes import human_bytes, human_share

MIB = 1 << 20
FLOOR = 64 * MIB
"""Less than this is never worth a word."""
CACHE_SHARE = 0.05
STUCK_SHARE = 0.10
"""From these shares of the reserved bytes on, cache and holes are named."""
WELL_USED = 0.9
"""At a peak with this share live, the holes of quieter moments are the peak's."""
SPLIT_SIZES = tuple(size * MIB for size in (512, 256, 128, 64, 32))
HELPS_SHARE = 0.25
"""A setting that reaches less than this share of the stuck bytes isn't worth trying."""


def kind_of_slack(figures: Figures) -> Slack:
    """Return whether reserved memory without tensors is cache, holes, both or too little."""
    free, stuck = returnable(figures), fixed(figures)
    is_cache = free >= max(FLOOR, CACHE_SHARE * figures.reserved)
    is_stuck = stuck >= max(FLOOR, STUCK_SHARE * figures.reserved)
    if is_cache and is_stuck:
        return Slack.BOTH
    if is_stuck:
        return Slack.FRAGMENTATION
    return Slack.CACHE if is_cache else Slack.TIDY


def returnable(figures: Figures) -> int:
    """Return the bytes that ``empty_cache()`` would give back to the driver."""
    return figures.cached + figures.releasable


def fixed(figures: Figures) -> int:
    """Return the bytes in holes that nothing gives back while their neighbours live."""
    return figures.stuck - figures.releasable


def pages_in_holes(segments: Sequence[Segment]) -> int:
    """Return how much of the stuck bytes would be whole pages if segments were expandable."""
    return sum(
        whole_pages(block.address - segment.address, block.size, is_small=segment.is_small)
        for segment in segments
        if not segment.is_expandable and _is_used(segment)
        for block in segment.blocks
        if block.state is BlockState.FREE
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
    if peak is not None and is_filled_at(peak) and fixed(figures) > STUCK_SHARE * peak.reserved:
        sentence += (
            f" At the peak {human_share(peak.active / peak.reserved)} of the reserved memory was "
            "live: the next step fills these holes again."
        )
    return sentence


def is_filled_at(peak: Figures) -> bool:
    """Return whether nearly all reserved memory was live at the peak."""
    return peak.reserved > 0 and peak.active >= WELL_USED * peak.reserved


def settings_advice(
    segments: Sequence[Segment],
    figures: Figures,
    peak: Figures | None,
    settings: Mapping[str, str],
    *,
    is_steady: bool,
) -> list[Advice]:
    """Return what each setting of the allocator would do here, the helpful first.

    Args:
        segments: the state that is judged.
        figures: its sums.
        peak: the sums at the peak, where the trace tells them.
        settings: the allocator's settings, as the file says.
        is_steady: whether a later step needs no more than the peak of this trace.

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
    stuck = fixed(figures)
    evidence = (
        f"{human_bytes(pages)} of the {human_bytes(stuck)} stuck in holes are whole pages, which "
        "such segments give back or use elsewhere."
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
        told = settings["max_split_size"]
        evidence = f"It is set already, to {told} bytes."
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
        helps=spare >= max(FLOOR, CACHE_SHARE * figures.reserved),
        evidence=evidence,
        bytes=free,
    )


def _collection(figures: Figures, settings: Mapping[str, str]) -> Advice:
    title = "garbage_collection_threshold"
    if settings.get(title, "0.0") not in ("0.0", "0", ""):
        evidence = f"It is set already, to {settings[title]}."
        return Advice(title=title, helps=False, evidence=evidence, bytes=0)
    evidence = "It returns wholly free segments alone, and only near the limit of the device"
    evidence += f": {human_bytes(figures.cached)} here, nothing of what is stuck."
    return Advice(title=title, helps=False, evidence=evidence, bytes=figures.cached)


def _kept_whole(segments: Sequence[Segment], size: int) -> int:
    """Return the stuck bytes in segments that are larger than ``size`` and hold smaller blocks."""
    return sum(
        block.size
        for segment in segments
        if segment.size > size and not segment.is_expandable and _is_split_small(segment, size)
        for block in segment.blocks
        if block.state is BlockState.FREE
    )


def _is_split_small(segment: Segment, size: int) -> bool:
    live = [block.size for block in segment.blocks if block.state is not BlockState.FREE]
    return bool(live) and max(live) <= size


def _is_used(segment: Segment) -> bool:
    return any(block.state is not BlockState.FREE for block in segment.blocks)


def _reaches(amount: int, figures: Figures) -> bool:
    is_much = fixed(figures) >= max(FLOOR, STUCK_SHARE * figures.reserved)
    return is_much and amount >= max(FLOOR, HELPS_SHARE * fixed(figures))
