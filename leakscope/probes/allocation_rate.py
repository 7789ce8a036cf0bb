"""How much Python allocates, and what tracing that with tracemalloc would cost.

tracemalloc takes time for each block that is handed out, whether it stays or is gone at once; no
figure of Python's tells how many those are. The native counter does, for a nanosecond a block.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from leakscope.probes.allocations import read_traces, summed
from leakscope.probes.raw_allocator import raw_allocator_kept

try:
    from leakscope.probes import _counting
except ImportError:  # no compiler, or a Python without the GIL: nothing is counted
    _counting = None  # type: ignore[assignment]

_SAMPLE = 2000
"""Objects made in a round of the calibration, a block each."""
_ROUNDS = 3
_DEPTH = 12
"""Frames below a round: deeper than any traceback that is kept, as those of programs are."""


class TracingCost(NamedTuple):
    """What tracemalloc costs in this process."""

    per_block: float
    """Seconds for each block that is handed out while it traces."""
    per_kept: float
    """Seconds to read one of those that are alive at the end."""


class AllocationCounter:
    """Counts blocks from :meth:`start` to :meth:`stop`; one at a time in a process."""

    is_counting = False

    def start(self) -> bool:
        """Begin to count; return False where it can't be done."""
        self.is_counting = _counting is not None
        if self.is_counting:
            _counting.start()
        return self.is_counting

    def stop(self) -> None:
        """Count no more."""
        if self.is_counting:
            self.is_counting = False
            _counting.stop()

    def counted(self) -> int:
        """Return how many blocks were handed out while it counted; only differences tell."""
        return _counting.counted() if self.is_counting else 0

    def arm(self, more: int, function: Callable[[], object]) -> None:
        """Have the main thread call ``function`` after so many more blocks, once."""
        if self.is_counting:
            _counting.arm(more, function)

    def disarm(self) -> None:
        """Have nothing called any more."""
        if self.is_counting:
            _counting.disarm()

    @staticmethod
    def alive() -> int:
        """Return how many blocks are handed out now."""
        return sys.getallocatedblocks()

    @staticmethod
    def cost(frames: int = 8) -> TracingCost | None:
        """Return what tracing costs here, tried out in some milliseconds.

        None where the program is tracing itself: then nothing is made slower by a window.
        """
        return None if tracemalloc.is_tracing() else _calibrated(frames)


def _calibrated(frames: int) -> TracingCost:
    global _known
    if _known is None:
        plain = median(_deep(_DEPTH, _round)[0] for _ in range(_ROUNDS))
        with raw_allocator_kept():
            tracemalloc.start(frames)
        try:
            tried = [_deep(_DEPTH, _round) for _ in range(_ROUNDS)]
        finally:
            tracemalloc.stop()
        traced, reading = (median(times) for times in zip(*tried, strict=True))
        _known = TracingCost(
            per_block=max(traced - plain, 0.0) / _SAMPLE, per_kept=reading / _SAMPLE
        )
    return _known


_known: TracingCost | None = None


def _deep(depth: int, function: Callable[[], Any]) -> Any:
    return function() if depth == 0 else _deep(depth - 1, function)


def _round() -> tuple[float, float]:
    """Return the seconds in which objects are made and let go, and those to read their traces."""
    began = perf_counter()
    made = [object() for _ in repeat(None, _SAMPLE)]
    middle = perf_counter()
    sums = summed(read_traces())
    read = perf_counter()
    del sums
    released = perf_counter()
    del made
    return middle - began + perf_counter() - released, read - middle


def _count_in_no_child() -> None:
    # Nobody would end it there, nor what it may call.
    if _counting is not None:
        _counting.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_in_no_child)
