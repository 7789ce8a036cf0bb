"""Why memory ran out: too little of it, or too much of it in holes; and what would have fitted.

A file dumped after the exception lies: the program has let go of its tensors by then. What counts
is the state just before the ``oom`` entry, which the history gives back exactly. A request of n
bytes failed by fragmentation if n would have fitted into what was free all together, stuck, cached
and on the device, but into no free place; else by capacity.
"""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.analysis.cuda.classes import Live, class_rows, classify
from leakscope.analysis.cuda.figures import figures_of
from leakscope.analysis.cuda.replay import OOM, SNAPSHOT, Replay
from leakscope.analysis.cuda.sites import function_of, operation_of, place_of, site_rows
from leakscope.analysis.cuda.slack import fixed, pages_in_holes, returnable
from leakscope.analysis.cuda.stack_kinds import kind_of
from leakscope.analysis.cuda.ways_to_fit import Need, ways_to_fit
from leakscope.model.allocator import DEFAULT_POOL, BlockState, Segment
from leakscope.model.device import Figures
from leakscope.model.explanation import BlockClass, Fault
from leakscope.model.sizes import human_bytes, human_share

SMALL_REQUEST = 1 << 20
FULL = 0.995
"""From this share of live bytes on, a state without a request is taken as full."""
LARGE = 1 << 30


def fault_of(
    played: Replay, *, is_recorded: bool, is_training: bool
) -> tuple[Fault, list[Segment]] | None:
    """Return why memory ran out and the state at that moment; None where it didn't."""
    last = [n for n, entry in enumerate(played.entries) if entry.action == OOM]
    if last:
        segments = played.state_after(last[-1] - 1)
        live = classify(segments, is_recorded=is_recorded)
        return _told(played, last[-1], segments, live, is_training=is_training), segments
    if not _is_full(played):
        return None
    live = classify(played.final, is_recorded=is_recorded)
    return _presumed(figures_of(played.final), live), played.final


def is_fragmentation(request: int, device_free: int, figures: Figures, largest_hole: int) -> bool:
    """Return whether a request failed by fragmentation rather than by capacity."""
    free = returnable(figures) + device_free
    return max(largest_hole, free) < request <= fixed(figures) + free


def largest_hole_for(request: int, stream: int, pool: tuple[int, int], state: list[Segment]) -> int:
    """Return the largest free block that may serve a request: of its stream, pool and size."""
    is_small = request <= SMALL_REQUEST
    return max(
        (
            block.size
            for segment in state
            if (segment.stream, segment.pool, segment.is_small) == (stream, pool, is_small)
            for block in segment.blocks
            if block.state is BlockState.FREE
        ),
        default=0,
    )


def _told(
    played: Replay,
    number: int,
    segments: list[Segment],
    live: Sequence[Live],
    *,
    is_training: bool,
) -> Fault:
    entry = played.entries[number]
    request, free = entry.size, entry.device_free or 0
    figures = figures_of(segments)
    hole = largest_hole_for(request, entry.stream, entry.pool or DEFAULT_POOL, segments)
    fragmented = is_fragmentation(request, free, figures, hole)
    missing = max(0, request - returnable(figures) - free)
    classes = class_rows(live)
    need = Need(
        request=request,
        missing=missing,
        is_fragmentation=fragmented,
        kind=kind_of(entry.stack) or BlockClass.OTHER,
        figures=figures,
        classes={row.kind: row.bytes for row in classes},
        sites=site_rows(live),
        largest_hole=hole,
        pages=pages_in_holes(segments),
        is_expandable=any(segment.is_expandable for segment in segments),
        is_training=is_training,
    )
    return Fault(
        entry=number,
        request=request,
        device_free=entry.device_free,
        is_fragmentation=fragmented,
        missing=missing,
        place=place_of(entry.stack),
        operation=operation_of(entry.stack) or function_of(entry.stack),
        figures=figures,
        classes=classes,
        sites=site_rows(live),
        sentence=fault_sentence(request, entry.device_free, figures, hole, is_stuck=fragmented)
        + _let_go(played, figures),
        fits_if=ways_to_fit(need),
    )


def fault_sentence(
    request: int, device_free: int | None, figures: Figures, hole: int, *, is_stuck: bool
) -> str:
    """Return what was asked for, what there was, and which kind of shortage that is."""
    free = "an unknown amount" if device_free is None else human_bytes(device_free)
    state = (
        f"{human_bytes(request)} were asked for with {free} left on the device; "
        f"{human_bytes(figures.active)} of {human_bytes(figures.reserved)} reserved were live"
        f" ({human_share(figures.active / figures.reserved) if figures.reserved else 'nothing'})"
    )
    unused = figures.reserved - figures.active
    if is_stuck:
        why = (
            f", and of the {human_bytes(unused)} that were free the largest place took "
            f"{human_bytes(hole)}: fragmentation."
        )
    else:
        why = f", and all that was free came to {human_bytes(unused)}: capacity, not fragmentation."
    return state + why


def _let_go(played: Replay, at_the_fault: Figures) -> str:
    at_the_end = figures_of(played.final)
    if at_the_end.active >= 0.9 * at_the_fault.active:
        return ""
    share = human_share(1 - at_the_end.active / max(1, at_the_end.reserved))
    return (
        f" The file itself was written after the exception had let go of "
        f"{human_bytes(at_the_fault.active - at_the_end.active)}: its {share} of free memory "
        "says nothing about the failure."
    )


def _is_full(played: Replay) -> bool:
    if not played.entries or played.entries[-1].action != SNAPSHOT:
        return False
    figures = figures_of(played.final)
    return figures.reserved >= LARGE and figures.active >= FULL * figures.reserved


def _presumed(figures: Figures, live: Sequence[Live]) -> Fault:
    unused = figures.reserved - figures.active
    return Fault(
        entry=None,
        request=None,
        device_free=None,
        is_fragmentation=False,
        missing=None,
        place="",
        operation="",
        figures=figures,
        classes=class_rows(live),
        sites=site_rows(live),
        sentence=(
            f"{human_bytes(figures.active)} of {human_bytes(figures.reserved)} reserved are live "
            f"and {human_bytes(unused)} lie in holes. The file holds no mark of a failure; if it "
            "was taken when memory ran out, as an out-of-memory observer does, that was capacity, "
            "not fragmentation."
        ),
        fits_if=ways_to_fit(
            Need(
                request=None,
                missing=None,
                is_fragmentation=False,
                kind=BlockClass.OTHER,
                figures=figures,
                classes={row.kind: row.bytes for row in class_rows(live)},
                sites=site_rows(live),
                largest_hole=figures.largest_hole,
                pages=0,
                is_expandable=False,
                is_training=False,
            )
        ),
    )
