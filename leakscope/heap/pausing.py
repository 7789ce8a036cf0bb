"""Keeps other threads, the cyclic collector and tracemalloc from working while the heap is looked
at, in this process alone, and waits until other threads change no gradients.

Without the native module threads go on meanwhile, and all goes on being traced.

Who looks refers to the program's objects meanwhile. Where another thread went on, it would find
more references to them than its own: ``native/lock.c``.

A traceback of each block that a census allocates would make the census several times as long, and
tell nothing: they are gone when it ends. Objects that were traced before keep their tracebacks.
"""

from __future__ import annotations

import _thread
import gc
import os
import sys
import tracemalloc
from collections.abc import Callable
from time import perf_counter
from types import CodeType, FrameType
from typing import ParamSpec, TypeVar

from leakscope.heap.anatomy import _native, outwards

P = ParamSpec("P")
T = TypeVar("T")

_keeps_lock = False
"""Whether no other thread has the interpreter's lock before we let it go."""


def keeping_lock(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what ``function`` returns; no other thread runs Python meanwhile, if that can be had.

    It should open no file and wait for nothing: others run then, and we may wait a second.
    """
    global _keeps_lock
    if _native is None or _keeps_lock:
        return function(*args, **kwargs)
    try:
        # Inside, because Ctrl-C may strike as soon as the call has returned.
        _native.keep_lock()
        _keeps_lock = _native.can_keep_lock()
        return function(*args, **kwargs)
    finally:
        _keeps_lock = False
        _native.keep_lock_no_more()


def letting_others_go_on(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what ``function`` returns, which lets go of the lock: it gets it back soon."""
    if not _keeps_lock:
        return function(*args, **kwargs)
    try:
        _native.keep_lock_no_more()
        return function(*args, **kwargs)
    finally:
        _native.keep_lock()


go_on_keeping_lock: Callable[[], None] = (
    (lambda: None) if _native is None else _native.go_on_keeping_lock
)
"""To be called now and then in what takes long; a few nanoseconds."""


def can_stand_still() -> bool:
    """Return whether the program stands still while the calling thread looks at its objects.

    In a thread of the program's that is taken for granted: the others mostly wait for it. While a
    thread of leakscope's looks they work, unless the native walker keeps the interpreter's lock.
    """
    if _native is not None and _native.can_keep_lock():
        return True
    threading = sys.modules.get("threading")
    return threading is None or _thread.get_ident() in threading._active


def standing_still(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what ``function`` returns; no other thread runs Python and nothing is collected."""
    return keeping_lock(lambda: without_collector(function, *args, **kwargs))


def at_rest(function: Callable[[], T], seconds: float) -> tuple[T, bool]:
    """Return what ``function`` returns, called standing still while no gradients change.

    It is called after so many seconds all the same; the second of what is returned is False then.
    """
    deadline = perf_counter() + seconds
    while True:
        rests = wait_for_autograd(deadline - perf_counter())
        if not rests:
            return standing_still(function), False
        # A pass may have begun since it was waited for.
        found = standing_still(lambda: None if autograd_changes() else (function(),))
        if found is not None:
            return found[0], True


_is_paused_by_us = False


def without_collector(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what ``function`` returns; the collector is off meanwhile and as it was afterwards."""
    global _is_paused_by_us
    was_enabled = gc.isenabled()
    try:
        # Inside, because Ctrl-C may strike as soon as the call has returned.
        _is_paused_by_us = _is_paused_by_us or was_enabled
        gc.disable()
        return function(*args, **kwargs)
    finally:
        if was_enabled:
            gc.enable()
            _is_paused_by_us = False


def is_collecting() -> bool:
    """Return whether a collection is under way, as in a ``__del__`` or a callback of the collector.

    What it looks at is in none of its lists then. Without the native walker that is not known.
    """
    return _native is not None and _native.is_collecting()


_POLL_SECONDS = 0.0005
_STARTS_PASSES = ("torch/autograd/graph.py", "torch/autograd/__init__.py")
"""Files of torch's whose functions call the engine."""


def is_in_backward() -> bool:
    """Return whether the calling thread is inside a backward pass."""
    torch = sys.modules.get("torch")
    task = getattr(getattr(torch, "_C", None), "_current_graph_task_id", None)
    return task is not None and task() != -1


def autograd_changes() -> bool:
    """Return whether another thread changes gradients or graphs at this moment.

    Who reads a gradient then may read memory that is being freed: see ``native/threads.c``.
    """
    if "torch" not in sys.modules:
        return False
    return _others_change_autograd(int(is_in_backward()))


def wait_for_autograd(seconds: float) -> bool:
    """Wait until no other thread changes gradients or graphs; return whether that came in time.

    While the interpreter's lock is kept they can't come to an end: it returns at once.
    """
    deadline = perf_counter() + seconds
    while autograd_changes():
        if _keeps_lock or perf_counter() >= deadline:
            return False
        # Not time.sleep, which programs replace in their tests.
        _never.acquire(timeout=_POLL_SECONDS)
    return True


_never = _thread.allocate_lock()
_never.acquire()


def frames_of_other_threads() -> dict[int, FrameType]:
    """Return the innermost frame of each thread but this, by its number, while the lock is kept.

    Who refers to a frame keeps its variables when it has returned.

    A frame that held its own would be garbage, and would keep what all threads work on alive.
    """
    frames = sys._current_frames()
    del frames[_thread.get_ident()]
    return frames


def others_change_autograd(own_passes: int) -> bool:
    """Return what the native walker would; ``own_passes`` under way are the calling thread's."""
    passes = 0
    for innermost in frames_of_other_threads().values():
        if _replaces_gradient(innermost):
            return True
        passes += any(f.f_code.co_filename.endswith(_STARTS_PASSES) for f in outwards(innermost))
    return passes > own_passes


_others_change_autograd: Callable[[int], bool] = (
    others_change_autograd if _native is None else _native.others_change_autograd
)


def _replaces_gradient(frame: FrameType) -> bool:
    """Say whether a function is at ``tensor.grad = ...``, or may be: torch frees it unlocked."""
    code = frame.f_code
    return _stores_gradient(code, frame.f_lasti) or (
        "grad" in code.co_consts and not {"setattr", "delattr"}.isdisjoint(code.co_names)
    )


def _stores_gradient(code: CodeType, at: int) -> bool:
    from opcode import opmap

    instructions = code.co_code
    if not 0 <= at < len(instructions) - 1:
        return False
    if instructions[at] not in (opmap["STORE_ATTR"], opmap["DELETE_ATTR"]):
        return False
    name = instructions[at + 1]
    if at >= 2 and instructions[at - 2] == opmap["EXTENDED_ARG"]:
        name |= instructions[at - 1] << 8
    return name < len(code.co_names) and code.co_names[name] == "grad"


_is_remembered = False


def remember_allocators() -> None:
    """Take note of Python's allocators, to be called right before tracing begins."""
    global _is_remembered
    if _native is not None:
        _native.remember_allocators()
        _is_remembered = True


def without_tracing(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what ``function`` returns; small blocks handed out meanwhile are not traced."""
    if not (_is_remembered and tracemalloc.is_tracing()):
        return function(*args, **kwargs)
    try:
        # Inside, because Ctrl-C may strike as soon as the call has returned.
        _native.trace_no_more()
        return function(*args, **kwargs)
    finally:
        _native.trace_again()


def _go_on_in_child() -> None:
    # Another thread may fork while a census is taken, and nobody ends that census in the child.
    global _is_paused_by_us, _keeps_lock
    _keeps_lock = False
    if _native is not None:
        _native.keep_lock_no_more()
    if _is_paused_by_us:
        _is_paused_by_us = False
        gc.enable()
    if _is_remembered:
        _native.trace_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_go_on_in_child)
