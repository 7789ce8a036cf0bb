"""What would have made a request fit, for this very run: each way with the bytes that it frees.

The ways that suffice come first, then by bytes. What would not have helped is said too: most
advice on out-of-memory errors is about fragmentation, and most errors are about capacity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from leakscope.analysis.cuda.sites import short_place
from leakscope.analysis.cuda.slack import fixed
from leakscope.model.device import Figures
from leakscope.model.explanation import BlockClass, SiteRow
from leakscope.model.shortage import Advice
from leakscope.model.sizes import human_bytes, human_share

WORTH = 0.02
"""What frees less than this share of the live bytes isn't named."""
_OF_THE_PASS = (BlockClass.ACTIVATIONS, BlockClass.BACKWARD)


@dataclass(frozen=True)
class Need:
    """A request that failed and the state it met; ``missing`` is None where it isn't known."""

    request: int | None
    missing: int | None
    is_fragmentation: bool
    kind: BlockClass
    figures: Figures
    classes: Mapping[BlockClass, int]
    sites: Sequence[SiteRow]
    largest_hole: int
    pages: int
    """Stuck bytes that would be whole pages if the segments were expandable."""
    is_expandable: bool
    is_training: bool
    told_by: str = "as far as stacks and sizes tell"
    """How it is known what is live for what."""

    @property
    def of_the_pass(self) -> int:
        """Bytes of activations, which shrink with the batch."""
        return sum(self.classes.get(kind, 0) for kind in _OF_THE_PASS)

    def suffices(self, amount: int) -> bool:
        """Return whether freeing so much would have made the request fit."""
        return amount > 0 and (self.missing is None or amount >= self.missing)


def ways_to_fit(need: Need) -> list[Advice]:
    """Return what would have helped, what suffices first, and what would not."""
    ranked = ranked_ways(need)
    return [*ranked, _allocator(need)] if not need.is_fragmentation else [_allocator(need), *ranked]


def ranked_ways(need: Need, others: Sequence[Advice] = ()) -> list[Advice]:
    """Return what to make smaller, what suffices first; ``others`` are ranked among it."""
    ways = [*_ways(need), *others]
    worth = [way for way in ways if way.bytes is None or way.bytes >= _least(need)]
    return sorted(worth, key=lambda way: (not way.helps, -(way.bytes or 0)))


def _ways(need: Need) -> Iterator[Advice]:
    if need.of_the_pass:
        yield _smaller_batch(need)
        yield from _checkpointing(need)
        if not need.is_training and need.request is not None:
            yield _no_grad(need)
    gradients = need.classes.get(BlockClass.GRADIENTS, 0)
    if gradients and need.kind is BlockClass.ACTIVATIONS:
        yield way_of(
            need,
            "Drop the gradients before the forward pass",
            gradients,
            "optimizer.zero_grad(set_to_none=True) right after the step: they are live although "
            "the request came from a forward pass.",
        )
    yield from _parameters(need)
    pending = need.figures.pending
    if pending:
        yield way_of(
            need,
            "Let other streams finish",
            pending,
            "The program has freed them, but record_stream keeps them until another stream is "
            "done: synchronise it earlier.",
        )


def _smaller_batch(need: Need) -> Advice:
    amount = need.of_the_pass
    if need.missing is None or need.request is None:
        text = f"{human_bytes(amount)} were made in forward and backward passes."
        return way_of(need, "Make the batch smaller", amount, text)
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
            key = f"{site.function} in {short_place(path)}"
            by_function[key] = by_function.get(key, 0) + site.bytes
    if by_function and need.request is not None:
        function, amount = max(by_function.items(), key=lambda item: item[1])
        yield way_of(
            need,
            "Recompute instead of keeping",
            amount,
            f"{function} made {human_bytes(amount)} of what was live; "
            "torch.utils.checkpoint around it keeps its inputs alone.",
        )


def _no_grad(need: Need) -> Advice:
    amount = need.of_the_pass
    return way_of(
        need,
        "Without gradients, if none are wanted",
        amount,
        "The history holds no backward pass and no optimizer. If this is inference, "
        f"torch.no_grad() frees most of the {human_bytes(amount)} that the graph keeps.",
    )


def _parameters(need: Need) -> Iterator[Advice]:
    states = need.classes.get(BlockClass.OPTIMIZER, 0)
    if states:
        yield way_of(
            need,
            "Keep the optimizer's state in 8 bits, or shard it",
            states * 3 // 4,
            f"It takes {human_bytes(states)}; in 8 bits a quarter of that.",
        )
    weights = need.classes.get(BlockClass.WEIGHTS, 0)
    if weights:
        yield way_of(
            need,
            "Keep the weights in half the bits, or shard them",
            weights // 2,
            f"They take {human_bytes(weights)}, {need.told_by}.",
        )


def _allocator(need: Need) -> Advice:
    stuck = fixed(need.figures)
    title = "expandable_segments:True"
    if need.is_expandable:
        text = f"It was on; {human_bytes(stuck)} were stuck in holes all the same."
        return Advice(title=title, helps=False, evidence=text, bytes=stuck)
    if need.is_fragmentation:
        text = (
            f"{human_bytes(stuck)} lay in holes of {human_bytes(need.largest_hole)} at most; "
            f"{human_bytes(need.pages)} of them are whole pages, which such segments would have "
            "given to any request."
        )
        return Advice(title=title, helps=need.suffices(need.pages), evidence=text, bytes=need.pages)
    text = f"No setting of the allocator finds more than the {human_bytes(stuck)} in its holes."
    return Advice(title=title, helps=False, evidence=text, bytes=stuck)


def way_of(need: Need, title: str, amount: int, evidence: str) -> Advice:
    """Return a way that frees so many bytes."""
    return Advice(title=title, helps=need.suffices(amount), evidence=evidence, bytes=amount)


def _least(need: Need) -> float:
    return WORTH * need.figures.active
