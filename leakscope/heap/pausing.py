"""Keeps the cyclic collector and tracemalloc from working while the heap is looked at, in this
process alone, and waits until other threads change no gradients.

A traceback of each block that a census allocates would make the census several times as dear, and
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

try:
    from leakscope.heap._native import is_collecting as _is_collecting
except ImportError:
    _is_collecting = None  # type: ignore[assignment]

try:
    from leakscope.heap import _native as _allocators
except ImportError:  # without the native walker all goes on being traced
    _allocators = None  # type: ignore[assignment]


P = ParamSpec("P")
T = TypeVar("T")

_is_paused_by_us = False


def without_collector(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what ``function`` returns; the collector is off meanwhile and as it was afterwards.

    Naming makes many objects and no garbage, so a collection would only cost time.
    """
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
    return _is_collecting is not None and _is_collecting()


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
    """Wait until no other thread changes gradients or graphs; return whether that came in time."""
    deadline = perf_counter() + seconds
    while autograd_changes():
        if perf_counter() >= deadline:
            return False
        # Not time.sleep, which programs replace in their tests.
        _never.acquire(timeout=_POLL_SECONDS)
    return True


_never = _thread.allocate_lock()
_never.acquire()


def frames_of_other_threads() -> dict[int, FrameType]:
    """Return the innermost frame of each thread but this, by its number.

    A frame that held its own would be garbage, and would keep what all threads work on alive.
    """
    frames = sys._current_frames()
    del frames[_thread.get_ident()]
    return frames


def others_change_autograd(own_passes: int) -> bool:
    """Return what the native walker would, where there is none.

    Args:
        own_passes: how many of the backward passes under way are the calling thread's.

    """
    passes = 0
    for innermost in frames_of_other_threads().values():
        if _replaces_gradient(innermost):
            return True
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code.co_filename.endswith(_STARTS_PASSES):
                passes += 1
                break
            frame = frame.f_back
    return passes > own_passes


_others_change_autograd: Callable[[int], bool]
try:
    from leakscope.heap._native import others_change_autograd as _native_others_change_autograd

    _others_change_autograd = _native_others_change_autograd
except ImportError:
    _others_change_autograd = others_change_autograd


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


def _enable_in_child() -> None:
    # Another thread may fork while a census is taken, and nobody ends that census in the child.
    global _is_paused_by_us
    if _is_paused_by_us:
        _is_paused_by_us = False
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enable_in_child)


_is_remembered = False


def remember_allocators() -> None:
    """Take note of Python's allocators, to be called right before tracing begins."""
    global _is_remembered
    if _allocators is not None:
        _allocators.remember_allocators()
        _is_remembered = True


def without_tracing(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what ``function`` returns; small blocks handed out meanwhile are not traced."""
    if not (_is_remembered and tracemalloc.is_tracing()):
        return function(*args, **kwargs)
    try:
        # Inside, because Ctrl-C may strike as soon as the call has returned.
        _allocators.trace_no_more()
        return function(*args, **kwargs)
    finally:
        _allocators.trace_again()


def _trace_in_child() -> None:
    # Another thread may fork while a census is taken, and nobody ends that census in the child.
    if _is_remembered:
        _allocators.trace_again()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_trace_in_child)
