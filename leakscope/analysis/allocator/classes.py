"""What live device memory is for, and which line of the user's allocated it.

Stacks and sizes tell weights, gradients, optimizer state, activations and workspaces apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from leakscope.model.device import Block, BlockState, Segment, Stack, StackFrame
from leakscope.model.explanation import BlockClass, ClassRow, SiteRow
from leakscope.model.text import human_count

CUBLAS_WORKSPACE = 8_519_680
"""cuBLAS's workspace before Hopper; no tensor has this size by chance."""
STACK = "its stack"
OLDER = "older than the recording: likely weights"
MOST_STATES = 4
"""An optimizer keeps so many tensors per parameter at most."""


class Live(msgspec.Struct, eq=False):
    """A live block and what it is for; ``by`` says how that is known."""

    block: Block
    kind: BlockClass
    by: str


@dataclass(frozen=True)
class Knowledge:
    """What the end of a history shows of its earlier moments."""

    older: Mapping[int, tuple[BlockClass, str]]
    """What is as old as the history and live to its end, by address: it was the same before."""
    parameters: Counter[int]
    """The sizes of the parameters, as far as gradients or optimizer state tell."""


NOTHING = Knowledge({}, Counter())


def classify(
    segments: Iterable[Segment], *, is_recorded: bool, known: Knowledge = NOTHING
) -> list[Live]:
    """Return every live block of one device with its class.

    If no stacks were recorded at all, a block without one tells nothing; ``known`` is what a later
    state of the same device tells.
    """
    found = [
        Live(block, *_class_by_itself(block, is_recorded))
        for segment in segments
        for block in segment.blocks
        if block.state is not BlockState.FREE
    ]
    _by_later(found, known)
    _by_sizes(found, known.parameters)
    return found


def knowledge_of(found: Sequence[Live]) -> Knowledge:
    """Return what a state shows of the moments before it."""
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
            bytes=(size := sum(live.block.size for live in inside)),
            count=len(inside),
            share=size / total,
            evidence=_evidence(inside),
        )
        for kind, inside in members.items()
    ]
    return sorted(rows, key=lambda row: -row.bytes)


def _class_by_itself(block: Block, is_recorded: bool) -> tuple[BlockClass, str]:
    if block.state is BlockState.PENDING:
        return BlockClass.PENDING, "freed, but still in use on another stream"
    if block.requested == CUBLAS_WORKSPACE:
        return BlockClass.WORKSPACE, "the size of cuBLAS's workspace"
    if block.stack is not None:
        kind = kind_of(block.stack)
        has_line = kind is not None or block.stack.python
        by = STACK if has_line else "native code without a Python stack"
        return kind or BlockClass.OTHER, by
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
    older = [live for live in found if live.by == OLDER]
    sizes = Counter(live.block.requested for live in older)
    times = min((sizes[size] // count for size, count in known.parameters.items()), default=0)
    # The old state of an optimizer that replaces its tensors: twice each parameter.
    if 2 <= times <= MOST_STATES:
        wanted = Counter({size: count * times for size, count in known.parameters.items()})
        by = f"older than the recording, {times} × the sizes of the parameters"
        _mark(older, wanted, BlockClass.OPTIMIZER, by)


def _by_sizes(found: Sequence[Live], known_parameters: Counter[int]) -> None:
    older = [live for live in found if live.by == OLDER]
    backward = [live for live in found if live.kind is BlockClass.BACKWARD]
    weights = Counter(live.block.requested for live in found if live.kind is BlockClass.WEIGHTS)
    states = [live for live in found if live.kind is BlockClass.OPTIMIZER]
    times, per_state = _count_states(states, backward)
    if per_state:
        wanted = Counter({size: count * times for size, count in per_state.items()})
        many, each = (human_count(sum(sizes.values())) for sizes in (wanted, per_state))
        words = f"its stack; {many} tensors = {times} × the sizes of {each} gradients"
        _mark(states, wanted, BlockClass.OPTIMIZER, words)
    parameters = known_parameters or per_state or weights
    if backward and parameters:
        words = "stack of backward, and the sizes of the parameters"
        _mark(backward, parameters, BlockClass.GRADIENTS, words)
    gradients = Counter(x.block.requested for x in backward if x.kind is BlockClass.GRADIENTS)
    known = known_parameters or per_state or gradients
    if older and known and not known - weights:
        by = "older than the recording, and the sizes of the parameters"
        _mark(older, known, BlockClass.WEIGHTS, by)
        for live in older:
            if live.by == OLDER:
                live.kind, live.by = BlockClass.UNKNOWN, "older than the recording, other sizes"


def _count_states(states: Sequence[Live], backward: Sequence[Live]) -> tuple[int, Counter[int]]:
    """Return how many tensors an optimizer keeps per parameter, and the sizes of one of them."""
    sizes = Counter(live.block.requested for live in states)
    gradients = Counter(live.block.requested for live in backward)
    for times in range(1, MOST_STATES + 1):
        # Step counters are of a few bytes each and come with no gradient of their size.
        per_state = Counter({n: c // times for n, c in sizes.items() if c % times == 0})
        covered = sum(n * c for n, c in per_state.items()) * times
        if per_state and not per_state - gradients and covered >= 0.99 * sum(sizes.elements()):
            return times, per_state
    return 0, Counter()


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


_LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages|lib/python\d[\d.]*|lib64/python\d[\d.]*)/"
    r"|(^|/)torch/(_tensor|_ops|nn/|optim/|autograd/|utils/|_dynamo/|_inductor/|cuda/|distributed/)"
    r"|torchinductor_|^<(?!string|stdin|ipython|cell|eval)"
)
_WORKSPACES = ("getNewWorkspace", "CUDABlasLtWorkspace", "getCUDABlasLtWorkspace")
_MODULE = "torch/nn/modules/module.py"
_CALLS = {"_call_impl", "_wrapped_call_impl"}
_LOADS = {
    "_apply", "to", "cuda", "half", "bfloat16", "float", "double", "load_state_dict",
    "_load_from_state_dict",
}  # fmt: skip
_LOADERS = re.compile(
    r"^(from_pretrained|_load_pretrained_model|load_state_dict|load_weights?|init_weights?"
    r"|init_all_weights|reset_parameters|load_model|initialize_weights|_init_weights?)$"
)
_WEIGHT_FILES = ("torch/nn/parameter.py", "torch/nn/init.py", "safetensors/torch.py")
_BACKWARD_FILES = ("torch/autograd/__init__.py", "torch/autograd/graph.py", "torch/_tensor.py")
_OPTIMIZER_PATH = re.compile(r"(^|/)(optim|optimizers?|\w*_optimizers?|optim_\w+)(/|\.py$)")
_COMMUNICATION = re.compile(r"torch/(distributed/(?!fsdp|optim)|nn/parallel/distributed\.py)")


def is_users(frame: StackFrame) -> bool:
    """Return whether a Python frame is in the user's own code rather than in a library's."""
    return not _is_library(frame.file.replace("\\", "/"))


@lru_cache(maxsize=10_000)
def kind_of(stack: Stack | None) -> BlockClass | None:
    """Return what a stack tells; None where there is no stack or nothing in it is telling."""
    if stack is None:
        return None
    native = [frame.name for frame in stack.frames]
    if any(mark in name for name in native for mark in _WORKSPACES):
        return BlockClass.WORKSPACE
    for frame in stack.python:
        kind = _class_of_frame(frame.file.replace("\\", "/"), frame.name)
        if kind is not None:
            return kind
    if stack.forward or any("torch::autograd::Engine" in name for name in native):
        return BlockClass.BACKWARD
    return None


@lru_cache(maxsize=20_000)
def _class_of_frame(file: str, name: str) -> BlockClass | None:
    if file.endswith(_MODULE):
        if name in _CALLS:
            return BlockClass.ACTIVATIONS
        return BlockClass.WEIGHTS if name in _LOADS else None
    if file.endswith(_WEIGHT_FILES) or _LOADERS.match(name):
        return BlockClass.WEIGHTS
    if "torch/nn/modules/" in file and name == "__init__":
        return BlockClass.WEIGHTS
    if file.endswith(_BACKWARD_FILES) and "backward" in name:
        return BlockClass.BACKWARD
    if _OPTIMIZER_PATH.search(file):
        return BlockClass.OPTIMIZER
    if _COMMUNICATION.search(file):
        return BlockClass.COMMUNICATION
    return BlockClass.ACTIVATIONS if name == "forward" else None


@lru_cache(maxsize=20_000)
def _is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None


SHOWN = 40
NATIVE = "native code, no Python stack"
NOT_RECORDED = "no stack was recorded"


def site_rows(found: Sequence[Live], most: int = SHOWN) -> list[SiteRow]:
    """Return live bytes by allocating line and class, the largest first."""
    total = sum(live.block.size for live in found) or 1
    members: dict[tuple[str, str], list[Live]] = {}
    for live in found:
        members.setdefault((line_of(live.block.stack), live.kind.value), []).append(live)
    rows = [
        SiteRow(
            place=place,
            function=function_of(inside[0].block.stack),
            operation=operation_of(inside[0].block.stack),
            kind=inside[0].kind,
            bytes=sum(live.block.size for live in inside),
            count=len(inside),
            largest=max(live.block.size for live in inside),
            share=sum(live.block.size for live in inside) / total,
        )
        for (place, _), inside in members.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.place))[:most]


def line_of(stack: Stack | None) -> str:
    """Return ``train.py:12``, or what there is instead of a line."""
    if stack is None:
        return NOT_RECORDED
    frame = _frame(stack)
    return NATIVE if frame is None else f"{frame.file}:{frame.line}"


def function_of(stack: Stack | None) -> str:
    """Return the name of the function that the line is in; empty without one."""
    frame = None if stack is None else _frame(stack)
    return "" if frame is None else frame.name


def operation_of(stack: Stack | None) -> str:
    """Return the innermost Python function where it is a library's; empty without one."""
    innermost = stack.python[0] if stack is not None and stack.python else None
    return "" if innermost is None or is_users(innermost) else innermost.name


def short_line(place: str) -> str:
    """Return a place with the last folder of its path alone."""
    return "/".join(place.replace("\\", "/").split("/")[-2:])


@lru_cache(maxsize=10_000)
def _frame(stack: Stack) -> StackFrame | None:
    # Code of a library alone still has a line: the outermost tells what was called.
    own = (frame for frame in stack.python if is_users(frame))
    return next(own, stack.python[0] if stack.python else None)
