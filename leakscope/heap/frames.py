"""The locals of running frames, by name, without leaving a trace on them.

Up to 3.12 reading ``frame.f_locals`` of a function leaves a dictionary on the frame that keeps what
it holds alive until the function returns; the native module reads the variables where they are.
From 3.13 on ``f_locals`` is a view and leaves nothing.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType

_read_variables: Callable[[FrameType], list[tuple[str, object]]] | None
try:
    from leakscope.heap._native import frame_locals as _read_variables
except ImportError:  # nothing was compiled, or 3.13 and newer, which need no help
    _read_variables = None

_HEAP = __file__.rpartition(os.sep)[0] + os.sep
_FRAME_AND_WE = 3
"""References to a snapshot that nobody else holds: the frame's, our name, an argument."""


def running_frames() -> list[tuple[int, FrameType]]:
    """Return thread id and frame of every running Python frame, the innermost of a thread first.

    The heap's own frames are left out: a frame that had a list of itself would be a cycle, and
    would keep alive all that the census knows until the collector runs.
    """
    tops: dict[int, FrameType | None] = dict(sys._current_frames())
    tops[threading.get_ident()] = _caller_of_the_heap()
    found = []
    for thread, top in tops.items():
        frame = top
        while frame is not None:
            found.append((thread, frame))
            frame = frame.f_back
    return found


def _caller_of_the_heap() -> FrameType | None:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_HEAP):
        frame = frame.f_back
    return frame


def locals_of(frame: FrameType) -> list[tuple[str, object]]:
    """Return the variables of a function's frame, cells dereferenced; unset ones are absent.

    For a module's or class's frame it returns nothing: their names live in a dictionary, which is
    ``frame.f_globals`` for a module.
    """
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return []
    if _read_variables is not None:
        return _read_variables(frame)
    return _read_snapshot(frame)


def _read_snapshot(frame: FrameType) -> list[tuple[str, object]]:
    """Read ``f_locals``, and empty the snapshot on the frame unless the program has it too."""
    snapshot = frame.f_locals
    found = list(snapshot.items())
    if sys.version_info < (3, 13) and sys.getrefcount(snapshot) <= _FRAME_AND_WE:
        snapshot.clear()
    return found
