"""Keeps the cyclic collector from running while the heap is looked at, in this process alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

try:
    from leakscope.heap._native import is_collecting as _is_collecting
except ImportError:
    _is_collecting = None  # type: ignore[assignment]

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
