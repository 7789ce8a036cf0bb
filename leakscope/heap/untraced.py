"""Keeps tracemalloc from tracing what a census makes for itself.

A traceback of each of those blocks would make the census several times as dear, and tell nothing:
they are gone when it ends. Objects that were traced before keep their tracebacks.
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

try:
    from leakscope.heap import _native as _allocators
except ImportError:  # without the native walker all goes on being traced
    _allocators = None  # type: ignore[assignment]

P = ParamSpec("P")
T = TypeVar("T")

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
