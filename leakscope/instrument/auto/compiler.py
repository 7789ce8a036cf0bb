"""Hooks of ours inside what ``torch.compile`` runs: it would compile them as well."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def compiler_callback(module: ModuleType) -> Callable[[], object]:
    """Return what tells whether torch would compile the Python functions called just now."""
    try:
        callback: Callable[[], object] = module.torch._C._dynamo.eval_frame.get_eval_frame_callback
        callback()
    except (AttributeError, TypeError):
        return lambda: None
    return callback


def compiles() -> bool:
    """Return whether the program has asked torch to compile anything."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(frames, "cached_backends", None) or {}
    return any(backend is not None for backend in list(backends.values()))  # None: to disable it


def uncompiled(function: Callable[[T], object], argument: T) -> None:
    """Call a function so that torch compiles neither it nor what it calls."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.disable(function)(argument)
