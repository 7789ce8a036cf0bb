"""Take from an exception what it keeps alive, and leave it its traceback.

A traceback holds the frames it passed through, and each frame its locals. The lines that a
traceback prints don't need them.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType

_MAY_PAUSE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def drop_locals(error: BaseException, outer: int = 0) -> None:
    """Drop the locals of all frames that have ended, of an exception and those behind it.

    Args:
        error: the exception.
        outer: the ``id`` of an exception to leave alone, with those behind it: one that was being
            handled already is the program's own business.

    """
    for frame in _frames(error, outer):
        if not _is_paused(frame):
            _clear(frame)


def _frames(error: BaseException, outer: int) -> Iterator[FrameType]:
    pending: list[BaseException | None] = [error]
    seen = {outer}
    while pending:
        behind = pending.pop()
        if behind is None or id(behind) in seen:
            continue
        seen.add(id(behind))
        traceback = behind.__traceback__
        while traceback is not None:
            yield traceback.tb_frame
            traceback = traceback.tb_next
        pending += [behind.__cause__, behind.__context__]


def _clear(frame: FrameType) -> None:
    try:
        frame.clear()
    except RuntimeError:
        pass  # it still runs


def _is_paused(frame: FrameType) -> bool:
    """Whether a generator or coroutine still has the frame: clearing it would end them."""
    if not frame.f_code.co_flags & _MAY_PAUSE:
        return False
    return any(_frame_of(holder) is frame for holder in gc.get_referrers(frame))


def _frame_of(holder: object) -> FrameType | None:
    """The frame of a generator or the like. Only those are asked: others may run code to answer."""
    kind = type(holder)
    if kind is GeneratorType:
        return holder.gi_frame  # type: ignore[attr-defined,no-any-return]
    if kind is CoroutineType:
        return holder.cr_frame  # type: ignore[attr-defined,no-any-return]
    if kind is AsyncGeneratorType:
        return holder.ag_frame  # type: ignore[attr-defined,no-any-return]
    return None
