"""Exceptions: the errors that a user may meet, and those that are not ours though they come out of
our code.

Handlers run between any two instructions. A program that raises ``TimeoutError`` in one waits for
that exception; whoever contains faults of their own must let it pass, like ``KeyboardInterrupt``:
``except ours(OSError):``.
"""

from __future__ import annotations

import inspect
import os
import sys
from types import FrameType, TracebackType
from typing import TypeVar

OUR_FILES = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120
"""What the names of files of this package begin with, as code objects have them."""

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_LEAK = 3
"""Of `leakscope run --until-leak`: a leak was found."""
EXIT_THRESHOLD = 2


class LeakscopeError(Exception):
    """A fault that the user can mend. ``slug`` names it in the documentation."""

    def __init__(self, message: str, *, slug: str = "error") -> None:
        super().__init__(message)
        self.slug = slug


class NoRunError(LeakscopeError):
    """The path is no run directory, or nothing in it can be read."""


class NewerSchemaError(LeakscopeError):
    """The run was written by a newer leakscope than this one."""


class RunExistsError(LeakscopeError):
    """The output directory already holds a run."""


class UnwritableError(LeakscopeError):
    """The output directory can't be written."""


class NoSnapshotError(LeakscopeError):
    """The file is no snapshot of torch's CUDA allocator, or not one that may be opened."""


E = TypeVar("E", bound=Exception)


def ours(*kinds: type[E]) -> tuple[type[E], ...]:
    """Return what an ``except`` catches: these kinds, or nothing if it is an interrupt."""
    error = sys.exc_info()[1]
    return () if error is not None and is_interrupt(error) else kinds


def real_path(path: str) -> str:
    """Return a path without symbolic links, as ``os.path.realpath`` does, interrupts passing.

    That one takes an ``OSError`` that a handler raises for a file that is missing.
    """
    try:
        return os.path.realpath(path, strict=True)
    except ours(OSError):
        folder, name = os.path.split(path)
        if not folder or not name:
            return os.path.abspath(path)  # noqa: PTH100
        return os.path.join(real_path(folder), name)  # noqa: PTH118


def is_interrupt(error: BaseException) -> bool:
    """Return whether a handler of the program's raised an exception in the middle of our code."""
    return not isinstance(error, Exception) or since_the_handler(error.__traceback__) is not None


def since_the_handler(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the signal's handler on; None where no handler in Python ran.

    A handler is known by what the interpreter calls it with: the frame that was interrupted.
    """
    interrupted: FrameType | None = None
    while traceback is not None:
        frame = traceback.tb_frame
        if interrupted is not None and _was_called_with(frame, interrupted):
            return traceback
        interrupted, traceback = frame, traceback.tb_next
    return None


def _was_called_with(frame: FrameType, value: FrameType) -> bool:
    code = frame.f_code
    gathers = bool(code.co_flags & inspect.CO_VARARGS)
    names = code.co_varnames[: code.co_argcount]
    known = frame.f_locals
    if any(known.get(name) is value for name in names):
        return True
    at = code.co_argcount + code.co_kwonlyargcount
    rest = known.get(code.co_varnames[at]) if gathers else None
    return type(rest) is tuple and any(argument is value for argument in rest)
