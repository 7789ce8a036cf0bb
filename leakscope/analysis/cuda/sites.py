"""Which line of the user's allocated live memory: the innermost frame outside of libraries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from leakscope.analysis.cuda.classes import Live
from leakscope.analysis.cuda.stack_kinds import is_users
from leakscope.model.allocator import Frame, Stack
from leakscope.model.explanation import SiteRow

SHOWN = 40
NATIVE = "native code, no Python stack"
NOT_RECORDED = "no stack was recorded"


def site_rows(found: Sequence[Live], most: int = SHOWN) -> list[SiteRow]:
    """Return live bytes by allocating line and class, the largest first."""
    total = sum(live.block.size for live in found) or 1
    members: dict[tuple[str, str], list[Live]] = {}
    for live in found:
        members.setdefault((place_of(live.block.stack), live.kind.value), []).append(live)
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


def place_of(stack: Stack | None) -> str:
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


def short_place(place: str) -> str:
    """Return a place with the last folder of its path alone."""
    return "/".join(place.replace("\\", "/").split("/")[-2:])


@lru_cache(maxsize=10_000)
def _frame(stack: Stack) -> Frame | None:
    # Code of a library alone still has a line: the outermost tells what was called.
    return next(
        (frame for frame in stack.python if is_users(frame)),
        stack.python[0] if stack.python else None,
    )
