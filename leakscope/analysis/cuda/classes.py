"""What live memory is for: weights, gradients, optimizer state, activations, workspaces.

Stacks tell of optimizer state, of forward passes and of workspaces. Gradients are born on
autograd's own thread, which has no Python stack; weights are mostly older than the recording. Both
are then told by their sizes: an optimizer keeps k tensors of every gradient's size, and every
gradient has the size of its weight. What no evidence reaches stays unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from leakscope.analysis.cuda.stack_kinds import kind_of
from leakscope.model.allocator import Block, BlockState, Segment
from leakscope.model.explanation import BlockClass, ClassRow
from leakscope.model.sizes import human_count

CUBLAS_WORKSPACE = 8_519_680
"""cuBLAS's workspace before Hopper; no tensor has this size by chance."""
STACK = "its stack"
OLDER = "older than the recording: likely weights"
MOST_STATES = 4
"""An optimizer keeps so many tensors per parameter at most."""


class Live(msgspec.Struct, eq=False):
    """A live block and what it is for; ``by`` says how that is known."""

    block: Block
    segment: Segment
    kind: BlockClass
    by: str


@dataclass(frozen=True)
class Knowledge:
    """What the end of a history tells of its earlier moments."""

    older: Mapping[int, tuple[BlockClass, str]]
    """What is as old as the history and live to its end, by address: it was the same before."""
    parameters: Counter[int]
    """The sizes of the parameters, as far as gradients or optimizer state tell."""


NOTHING = Knowledge({}, Counter())


def classify(
    segments: Iterable[Segment], *, is_recorded: bool, known: Knowledge = NOTHING
) -> list[Live]:
    """Return every live block with its class.

    Args:
        segments: the state of one device.
        is_recorded: whether stacks were recorded at all; if not, a block without one tells nothing.
        known: what a later state of the same device tells.

    """
    found = [
        _by_itself(block, segment, is_recorded)
        for segment in segments
        for block in segment.blocks
        if block.state is not BlockState.FREE
    ]
    _by_later(found, known)
    _by_sizes(found, known.parameters)
    return found


def knowledge_of(found: Sequence[Live]) -> Knowledge:
    """Return what a state tells of the moments before it."""
    gradients = Counter(x.block.requested for x in found if x.kind is BlockClass.GRADIENTS)
    older = {x.block.address: (x.kind, x.by) for x in found if x.block.born is None}
    return Knowledge(older, gradients)


def class_rows(found: Sequence[Live]) -> list[ClassRow]:
    """Return live bytes by class, the largest first."""
    total = sum(live.block.size for live in found) or 1
    members: dict[BlockClass, list[Live]] = {}
    for live in found:
        members.setdefault(live.kind, []).append(live)
    rows = [
        ClassRow(
            kind=kind,
            bytes=sum(live.block.size for live in inside),
            count=len(inside),
            share=sum(live.block.size for live in inside) / total,
            evidence=_evidence(inside),
        )
        for kind, inside in members.items()
    ]
    return sorted(rows, key=lambda row: -row.bytes)


def _by_itself(block: Block, segment: Segment, is_recorded: bool) -> Live:
    kind, by = _kind(block, is_recorded)
    return Live(block, segment, kind, by)


def _kind(block: Block, is_recorded: bool) -> tuple[BlockClass, str]:
    if block.state is BlockState.PENDING:
        return BlockClass.PENDING, "freed, but still in use on another stream"
    if block.requested == CUBLAS_WORKSPACE:
        return BlockClass.WORKSPACE, "the size of cuBLAS's workspace"
    told = kind_of(block.stack)
    if told is not None:
        return told, STACK
    if block.stack is not None and block.stack.python:
        return BlockClass.OTHER, STACK
    if block.stack is not None:
        return BlockClass.OTHER, "native code without a Python stack"
    if not is_recorded:
        return BlockClass.UNKNOWN, "no stacks were recorded"
    if block.born is not None:
        return BlockClass.BACKWARD, "born in the recording on a thread without Python"
    return BlockClass.WEIGHTS, OLDER


def _by_later(found: Sequence[Live], known: Knowledge) -> None:
    for live in found:
        later = known.older.get(live.block.address) if live.block.born is None else None
        if later is not None and live.by == OLDER:
            live.kind, live.by = later
    _replaced([live for live in found if live.by == OLDER], known.parameters)


def _replaced(older: Sequence[Live], parameters: Counter[int]) -> None:
    """Tell the old state of an optimizer that makes its tensors anew: twice each parameter."""
    sizes = Counter(live.block.requested for live in older)
    times = min((sizes[size] // count for size, count in parameters.items()), default=0)
    if 2 <= times <= MOST_STATES:
        wanted = Counter({size: count * times for size, count in parameters.items()})
        by = f"older than the recording, {times} × the sizes of the parameters"
        _mark(older, wanted, BlockClass.OPTIMIZER, by)


def _by_sizes(found: Sequence[Live], known_parameters: Counter[int]) -> None:
    older = [live for live in found if live.by == OLDER]
    backward = [live for live in found if live.kind is BlockClass.BACKWARD]
    weights = Counter(live.block.requested for live in found if live.kind is BlockClass.WEIGHTS)
    times, of_one = _states_of_one([x for x in found if x.kind is BlockClass.OPTIMIZER], backward)
    if of_one:
        _confirm(found, BlockClass.OPTIMIZER, of_one, times, _state_words(times, of_one))
    parameters = known_parameters or of_one or weights
    if backward and parameters:
        words = "stack of backward, and the sizes of the parameters"
        _mark(backward, parameters, BlockClass.GRADIENTS, words)
    gradients = Counter(x.block.requested for x in backward if x.kind is BlockClass.GRADIENTS)
    known = known_parameters or of_one or gradients
    if older and known and not known - weights:
        _mark(
            older,
            known,
            BlockClass.WEIGHTS,
            "older than the recording, and the sizes of the parameters",
        )
        for live in older:
            if live.by == OLDER:
                live.kind, live.by = BlockClass.UNKNOWN, "older than the recording, other sizes"


def _states_of_one(states: Sequence[Live], backward: Sequence[Live]) -> tuple[int, Counter[int]]:
    """Return how many tensors an optimizer keeps per parameter, and the sizes of one of them."""
    sizes = Counter(live.block.requested for live in states)
    gradients = Counter(live.block.requested for live in backward)
    for times in range(1, MOST_STATES + 1):
        # Step counters are of a few bytes each and come with no gradient of their size.
        of_one = Counter({n: c // times for n, c in sizes.items() if c % times == 0})
        covered = sum(n * c for n, c in of_one.items()) * times
        if of_one and not of_one - gradients and covered >= 0.99 * sum(sizes.elements()):
            return times, of_one
    return 0, Counter()


def _state_words(times: int, of_one: Counter[int]) -> str:
    count = sum(of_one.values())
    return (
        f"its stack; {human_count(times * count)} tensors = {times} × the sizes of "
        f"{human_count(count)} gradients"
    )


def _confirm(
    found: Sequence[Live], kind: BlockClass, sizes: Counter[int], times: int, by: str
) -> None:
    wanted = Counter({size: count * times for size, count in sizes.items()})
    _mark([live for live in found if live.kind is kind], wanted, kind, by)


def _mark(candidates: Sequence[Live], sizes: Counter[int], kind: BlockClass, by: str) -> None:
    left = Counter(sizes)
    for live in candidates:
        if left[live.block.requested] > 0:
            left[live.block.requested] -= 1
            live.kind, live.by = kind, by


def _evidence(inside: Sequence[Live]) -> str:
    weights: Counter[str] = Counter()
    for live in inside:
        weights[live.by] += live.block.size
    return weights.most_common(1)[0][0]
