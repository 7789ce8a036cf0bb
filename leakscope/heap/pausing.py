"""Keeps the cyclic collector and tracemalloc from working while the heap is looked at, in this
process alone.

A traceback of each block that a census allocates would make the census several times as dear, and
tell nothing: they are gone when it ends. Objects that were traced before keep their tracebacks.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable
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
