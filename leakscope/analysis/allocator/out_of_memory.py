"""Why device memory ran out (too little, or too much in holes), and what would have fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from leakscope.analysis.allocator.classes import (
    class_rows,
    classify,
    function_of,
    kind_of,
    line_of,
    operation_of,
    short_line,
    site_rows,
)
from leakscope.analysis.allocator.replay import OOM, SNAPSHOT, Replay
from leakscope.analysis.allocator.segments import (
    figures_of,
    fixed,
    free_blocks,
    pages_in_holes,
    pool_key,
    returnable,
)
from leakscope.analysis.growth import policy
from leakscope.model.device import DEFAULT_POOL, Advice, Figures, Segment
from leakscope.model.explanation import BlockClass, Fault, SiteRow
from leakscope.model.text import human_bytes, human_share

SMALL_REQUEST = 1 << 20


def fault_of(
    played: Replay, *, is_recorded: bool, is_training: bool
) -> tuple[Fault, list[Segment]] | None:
    """Return why memory ran out and the state at that moment; None where it didn't."""
    failed = [n for n, entry in enumerate(played.entries) if entry.action == OOM]
    if not failed and not _is_full(played):
        return None
    entry = played.entries[failed[-1]] if failed else None
    segments = played.state_after(failed[-1] - 1) if failed else played.final
    live = classify(segments, is_recorded=is_recorded)
    figures, classes = figures_of(segments), class_rows(live)
    need = Need(
        figures=figures,
        classes={row.kind: row.bytes for row in classes},
        sites=site_rows(live),
        largest_hole=figures.largest_hole,
    )
    sentence = (
        f"{human_bytes(figures.active)} of {human_bytes(figures.reserved)} reserved are live "
        f"and {human_bytes(figures.reserved - figures.active)} lie in holes. The file holds no "
        "mark of a failure; if it was taken when memory ran out, as an out-of-memory observer "
        "does, that was capacity, not fragmentation."
    )
    if entry is not None:
        request, free = entry.size, entry.device_free or 0
        hole = largest_hole_for(request, entry.stream, entry.pool or DEFAULT_POOL, segments)
        is_stuck = is_fragmentation(request, free, figures, hole)
        need = replace(
            need,
            request=request,
            missing=max(0, request - returnable(figures) - free),
            is_fragmentation=is_stuck,
            kind=kind_of(entry.stack) or BlockClass.OTHER,
            largest_hole=hole,
            pages=pages_in_holes(segments),
            is_expandable=any(segment.is_expandable for segment in segments),
            is_training=is_training,
        )
        sentence = fault_sentence(request, entry.device_free, figures, hole, is_stuck=is_stuck)
        sentence += _let_go(played, figures)
    fault = Fault(
        entry=failed[-1] if failed else None,
        request=need.request,
        device_free=entry.device_free if entry else None,
        is_fragmentation=need.is_fragmentation,
        missing=need.missing,
        place=line_of(entry.stack) if entry else "",
        operation=operation_of(entry.stack) or function_of(entry.stack) if entry else "",
        figures=figures,
        classes=classes,
        sites=list(need.sites),
        sentence=sentence,
        fits_if=fitting_advice(need),
    )
    return fault, segments


def is_fragmentation(request: int, device_free: int, figures: Figures, largest_hole: int) -> bool:
    """Return whether a request failed by fragmentation rather than by capacity."""
    free = returnable(figures) + device_free
    return max(largest_hole, free) < request <= fixed(figures) + free


def largest_hole_for(request: int, stream: int, pool: tuple[int, int], state: list[Segment]) -> int:
    """Return the largest free block that may serve a request: of its stream, pool and size."""
    is_small = request <= SMALL_REQUEST
    holes = (
        block.size
        for segment in state
        if pool_key(segment) == (stream, pool, is_small)
        for block in free_blocks(segment)
    )
    return max(holes, default=0)


def fault_sentence(
    request: int, device_free: int | None, figures: Figures, hole: int, *, is_stuck: bool
) -> str:
    """Return what was requested, what there was, and which kind of shortage that is."""
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
    if at_the_end.active >= policy.MAIN_SHARE * at_the_fault.active:
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
    is_large = figures.reserved >= policy.LARGE_DEVICE_BYTES
    return is_large and figures.active >= policy.FULL_SHARE * figures.reserved


_OF_THE_PASS = (BlockClass.ACTIVATIONS, BlockClass.BACKWARD)


@dataclass(frozen=True)
class Need:
    """A request that failed and the state it met; ``missing`` is None where it isn't known."""

    figures: Figures
    classes: Mapping[BlockClass, int]
    largest_hole: int
    sites: Sequence[SiteRow] = ()
    request: int | None = None
    missing: int | None = None
    is_fragmentation: bool = False
    kind: BlockClass = BlockClass.OTHER
    pages: int = 0
    """Stuck bytes that would be whole pages if the segments were expandable."""
    is_expandable: bool = False
    is_training: bool = False
    basis: str = "as far as stacks and sizes tell"
    """How it is known what is live for what."""

    @property
    def of_the_pass(self) -> int:
        """Bytes of activations, which shrink with the batch."""
        return sum(self.classes.get(kind, 0) for kind in _OF_THE_PASS)

    def suffices(self, amount: int) -> bool:
        """Return whether freeing so much would have made the request fit."""
        return amount > 0 and (self.missing is None or amount >= self.missing)


def fitting_advice(need: Need) -> list[Advice]:
    """Return what would have helped, what suffices first, and what would not."""
    ranked = ranked_advice(need)
    return [*ranked, _allocator(need)] if not need.is_fragmentation else [_allocator(need), *ranked]


def ranked_advice(need: Need, others: Sequence[Advice] = ()) -> list[Advice]:
    """Return what to make smaller, what suffices first; ``others`` are ranked among it."""
    ways = [*_iter_advice(need), *others]
    least = policy.STEP_SHARE * need.figures.active
    worth = [way for way in ways if way.bytes is None or way.bytes >= least]
    return sorted(worth, key=lambda way: (not way.helps, -(way.bytes or 0)))


def _iter_advice(need: Need) -> Iterator[Advice]:
    if need.of_the_pass:
        yield _smaller_batch(need)
        yield from _checkpointing(need)
        if not need.is_training and need.request is not None:
            yield to_advice(
                need,
                "Without gradients, if none are wanted",
                need.of_the_pass,
                "The history holds no backward pass and no optimizer. If this is inference, "
                f"torch.no_grad() frees most of the {human_bytes(need.of_the_pass)} that the graph "
                "keeps.",
            )
    gradients = need.classes.get(BlockClass.GRADIENTS, 0)
    if gradients and need.kind is BlockClass.ACTIVATIONS:
        yield to_advice(
            need,
            "Drop the gradients before the forward pass",
            gradients,
            "optimizer.zero_grad(set_to_none=True) right after the step: they are live although "
            "the request came from a forward pass.",
        )
    yield from _parameters(need)
    if need.figures.pending:
        yield to_advice(
            need,
            "Let other streams finish",
            need.figures.pending,
            "The program has freed them, but record_stream keeps them until another stream is "
            "done: synchronise it earlier.",
        )


def _smaller_batch(need: Need) -> Advice:
    amount = need.of_the_pass
    if need.missing is None or need.request is None:
        text = f"{human_bytes(amount)} were made in forward and backward passes."
        return to_advice(need, "Make the batch smaller", amount, text)
    of_pass = need.request if need.kind in _OF_THE_PASS else 0
    share = need.missing / (amount + of_pass) if amount + of_pass else 1.0
    if share >= 1:
        text = f"Even without its {human_bytes(amount)} of activations it would not have fitted."
        return Advice(title="Make the batch smaller", helps=False, evidence=text, bytes=amount)
    text = (
        f"{human_bytes(amount)} of activations were live: with {human_share(share)} less of them, "
        "request included, it would have fitted, if they grow in proportion to the batch."
    )
    return Advice(
        title=f"Make the batch {max(1, round(100 * share + 0.5))} % smaller",
        helps=True,
        evidence=text,
        bytes=amount,
    )


def _checkpointing(need: Need) -> Iterator[Advice]:
    by_function: dict[str, int] = {}
    for site in need.sites:
        if site.kind is BlockClass.ACTIVATIONS and site.function:
            path = site.place.rpartition(":")[0]
            key = f"{site.function} in {short_line(path)}"
            by_function[key] = by_function.get(key, 0) + site.bytes
    if by_function and need.request is not None:
        function, amount = max(by_function.items(), key=lambda item: item[1])
        yield to_advice(
            need,
            "Recompute instead of keeping",
            amount,
            f"{function} made {human_bytes(amount)} of what was live; "
            "torch.utils.checkpoint around it keeps its inputs alone.",
        )


def _parameters(need: Need) -> Iterator[Advice]:
    states = need.classes.get(BlockClass.OPTIMIZER, 0)
    if states:
        yield to_advice(
            need,
            "Keep the optimizer's state in 8 bits, or shard it",
            states * 3 // 4,
            f"It takes {human_bytes(states)}; in 8 bits a quarter of that.",
        )
    weights = need.classes.get(BlockClass.WEIGHTS, 0)
    if weights:
        yield to_advice(
            need,
            "Keep the weights in half the bits, or shard them",
            weights // 2,
            f"They take {human_bytes(weights)}, {need.basis}.",
        )


def _allocator(need: Need) -> Advice:
    stuck = fixed(need.figures)
    title = "expandable_segments:True"
    if need.is_expandable:
        text = f"It was on; {human_bytes(stuck)} were stuck in holes all the same."
    elif need.is_fragmentation:
        text = (
            f"{human_bytes(stuck)} lay in holes of {human_bytes(need.largest_hole)} at most; "
            f"{human_bytes(need.pages)} of them are whole pages, which such segments would have "
            "given to any request."
        )
        return to_advice(need, title, need.pages, text)
    else:
        text = f"No setting of the allocator finds more than the {human_bytes(stuck)} in its holes."
    return Advice(title=title, helps=False, evidence=text, bytes=stuck)


def to_advice(need: Need, title: str, amount: int, evidence: str) -> Advice:
    """Return a way that frees so many bytes."""
    return Advice(title=title, helps=need.suffices(amount), evidence=evidence, bytes=amount)
