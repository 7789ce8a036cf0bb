"""How many shapes of tensors the running functions were seen to hold.

Libraries keep something for each shape that they meet: oneDNN compiles a kernel and caches it. What
grows with new shapes alone is no leak, so their number stands beside the memory at boundaries.
Looked at are the variables of the boundary's own thread; numbers are kept, and no tensor.
"""

from __future__ import annotations

import os
import sys
from collections import UserDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from leakscope.heap.frames import locals_of
from leakscope.model import gauge

MOST_SHAPES = 2048
"""More aren't told apart: no cache of a library that is known has room for so many."""
MOST_FRAMES = 24
MOST_NAMES = 256
MOST_ITEMS = 16
"""A container of more is no batch."""
DEEPEST = 2
LEAST_DIMENSIONS = 2
"""Vectors are labels, lengths and histories."""

_CONTAINERS = frozenset({dict, list, tuple})
"""Looking into these runs no code of the program's."""
_LEAKSCOPE = str(Path(__file__).parents[1]) + os.sep


class ShapesReader:
    """Counts shapes at boundaries that are measured; a source of gauges."""

    name = "shapes"
    slow = True

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def gauges(self) -> dict[str, int]:
        """Return how many shapes were seen so far; nothing before torch is there."""
        torch = sys.modules.get("torch")
        kind = getattr(torch, "Tensor", None)
        if kind is None:
            return {}
        core: Any = sys.modules["torch._C"]
        # No mode of the program's hears of it.
        with core.DisableTorchFunction(), core._DisableTorchDispatch():
            for frame in _frames(sys._getframe()):
                self._look(_variables(frame), kind, DEEPEST)
        return {gauge.SHAPES: len(self._seen)}

    def _look(self, values: Iterable[Any], kind: type, depth: int) -> None:
        """Look at values and at what small containers among them hold."""
        for value in values:
            its = type(value)
            if its is kind:
                self._add(value)
            elif depth and (its in _CONTAINERS or UserDict in its.__mro__):
                self._look(_items(value), kind, depth - 1)

    def _add(self, tensor: Any) -> None:
        try:
            shape = tensor.shape
        except RuntimeError:  # a nested tensor has none
            return
        if len(shape) >= LEAST_DIMENSIONS and len(self._seen) < MOST_SHAPES:
            self._seen.add(hash(shape))


def _frames(inner: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of the program from the innermost outwards, without our own."""
    for _ in range(MOST_FRAMES):
        if inner is None:
            return
        if not inner.f_code.co_filename.startswith(_LEAKSCOPE):
            yield inner
        inner = inner.f_back


def _variables(frame: FrameType) -> list[object]:
    if frame.f_code.co_name == "<module>":
        return list(frame.f_globals.values())[-MOST_NAMES:]
    return [value for _, value in locals_of(frame)]


def _items(value: Any) -> Iterable[Any]:
    """Return what a small container holds."""
    if type(value) not in _CONTAINERS:
        value = vars(value).get("data")
    if type(value) not in _CONTAINERS or len(value) > MOST_ITEMS:
        return ()
    return list(value.values()) if type(value) is dict else list(value)
