"""Keeps our frames out of the tracebacks of interrupts: they show where the program stood.

A bare ``raise`` adds no entry for the frame that it stands in. So whoever takes that frame's entry
off an exception, and raises it again, leaves no trace.
"""

from __future__ import annotations

from pathlib import Path
from types import FrameType, TracebackType

from leakscope.model.interrupts import is_interrupt, since_the_handler

_OURS = f"{Path(__file__).parents[1]}/"


def leave_event(interrupt: BaseException) -> None:
    """Take off all that an event of ours did until the interrupt struck.

    What a handler in Python raised keeps what came after the handler was called. If it is an
    ``Exception`` it keeps everything: only so do others of us tell it from a fault of ours.
    """
    if not isinstance(interrupt, Exception):
        _cut(interrupt, since_the_handler(interrupt.__traceback__))


def leave_hook(error: BaseException) -> None:
    """Take the calls from a hook of ours to an event off an interrupt, and the event with them.

    Other exceptions stay as they are.
    """
    if is_interrupt(error):
        traceback = error.__traceback__
        _cut(error, since_the_handler(traceback) or _without_leading(traceback))


def without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of our code, wherever they stand."""
    traceback = first = _without_leading(traceback)
    while traceback is not None:
        traceback.tb_next = _without_leading(traceback.tb_next)
        traceback = traceback.tb_next
    return first


def _without_leading(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_OURS):
        traceback = traceback.tb_next
    return traceback


def _cut(interrupt: BaseException, rest: TracebackType | None) -> None:
    """Leave an interrupt the rest of its traceback, and of what it came upon what isn't ours."""
    left = _frames_before(rest, interrupt.__traceback__)
    upon = interrupt.__context__
    while upon is not None and upon.__traceback__ is not None:
        if upon.__traceback__.tb_frame not in left:  # it was caught elsewhere
            break
        upon = upon.__context__
    interrupt.__context__ = upon
    interrupt.__traceback__ = rest


def _frames_before(rest: TracebackType | None, traceback: TracebackType | None) -> list[FrameType]:
    frames = []
    while traceback is not None and traceback is not rest:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames
