"""Windows of tracemalloc: which lines allocated what is alive at the end, and what tracing would
cost.

tracemalloc also hooks ``PyMem_RawMalloc``, and its hook waits for the GIL. A thread of C++ that is
just entering Python (an autograd worker, gloo's loop) waits there with a lock of its own, on which
whoever has the GIL may wait in turn; and where ``tracemalloc.stop()`` runs meanwhile it goes on
with what that has freed, and the process dies: CPython's issues 128679 and 155725. No line of a
user's allocates by it, so a trace loses nothing without.

Tracing takes 1.2 to 2.8 times the running time while it is on, so a window is opened once something
grows and closed as soon as its share of the budget is spent. Only blocks of Python's allocators are
seen: a tensor counts as its wrapper of some hundred bytes, its storage not at all.

tracemalloc takes time for each block that is handed out, whether it stays or is gone at once; no
figure of Python's says how many those are. The native counter does, for a nanosecond a block.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from leakscope.model.census import Site, cells_of_shell, is_installed
from leakscope.model.errors import OUR_FILES, real_path

try:
    from leakscope.probes import _counting
except ImportError:  # no compiler, or a Python without the GIL: nothing is counted
    _counting = None  # type: ignore[assignment]


_RAW_DOMAIN = 0
"""``PYMEM_DOMAIN_RAW`` of CPython's ``Include/cpython/pymem.h``."""


class _Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


@contextmanager
def raw_allocator_kept() -> Iterator[None]:
    """Put the raw allocator that is in force now back at the end, whatever replaced it inside."""
    allocator = _Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(_RAW_DOMAIN, ctypes.byref(allocator))
    try:
        yield
    finally:
        ctypes.pythonapi.PyMem_SetAllocator(_RAW_DOMAIN, ctypes.byref(allocator))


_MOST_OVERHEAD = 512 << 20
"""Bytes of tracemalloc's own beyond which reading its traces would cost more than it is worth."""

_Frame = tuple[str, int]
_Traceback = tuple[_Frame, ...]
"""Innermost frame first."""
_Trace = tuple[int, int, _Traceback, int]
"""Domain, bytes, where, and how deep the stack really was."""
_Totals = dict[_Traceback, list[int]]
"""Bytes and number of live blocks."""


class AllocationWindow:
    """Traces ``frames`` of each stack from :meth:`open` to :meth:`close`, after ``before()``.

    If the program traces by itself its tracing is used and left alone; what was alive before is
    subtracted.
    """

    is_open: bool
    is_cut = False
    """Whether tracing was ended before the window is closed: then it has seen nothing."""

    def __init__(self, frames: int = 8, before: Callable[[], None] = lambda: None) -> None:
        self.is_open = False
        self._begins = before
        self._frames = frames
        self._is_ours = False
        self._before: _Totals | None = {}

    def open(self) -> bool:
        """Begin; return False where the program is tracing already (its tracing is used)."""
        if not self.is_open:
            self.is_open = True
            self._is_ours = not tracemalloc.is_tracing()
            self._before = {} if self._is_ours else summed(read_traces())
            if self._is_ours:
                self._begins()
                _start(self._frames)
        return self._is_ours

    def cut(self) -> None:
        """End tracing at once, whatever the program is doing; what was traced is forgotten."""
        if self.is_open and self._is_ours:
            _stop()
            self.is_cut = True
            self._is_ours = False  # what traces from now on is the program's

    def close(self, top: int = 60, project_root: str = "") -> tuple[list[Site], int]:
        """End, and return the ``top`` lines that allocated most of what lives, and all such bytes.

        Blocks are charged to the innermost line of the project's own, else to the innermost of all.
        With ``top`` 0 nothing is read.
        """
        if not self.is_open:
            return [], 0
        traces = None
        try:
            if top and not self.is_cut:
                traces = read_traces()
        finally:
            if self._is_ours and _traces_for_us:
                _stop()  # before the sums are made: it would trace every one of them
            # Not before tracing has ended: what breaks in would leave it on for good.
            self.is_open = False
        before, self._before = self._before, {}
        live = summed(traces)
        if live is None or before is None:
            return [], 0
        return _sites(live, before, _Attribution(project_root), top)


class _Attribution:
    _wrappers = f"{OUR_FILES}capture{os.sep}"
    _noise = ("<frozen importlib", tracemalloc.__file__)
    _standard = tuple(
        os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")
    )

    def __init__(self, project_root: str) -> None:
        self._root = os.path.realpath(project_root) + os.sep if project_root else ""
        self._main = getattr(sys.modules.get("__main__"), "__file__", None)
        self._known: dict[str, bool] = {}

    def line(self, traceback: _Traceback) -> _Frame | None:
        """Return the line to charge; None for leakscope's own blocks and the import system's."""
        innermost = traceback[0]
        if innermost[0].startswith((OUR_FILES, *self._noise)):
            return None
        for frame in traceback:
            if self._is_user(frame[0]):
                return frame
            # Wrapped iterators pass through capture's frames; the other rooms only
            # ever call libraries for themselves.
            if frame[0].startswith(OUR_FILES) and not frame[0].startswith(self._wrappers):
                return None
        return innermost

    def _is_user(self, file: str) -> bool:
        known = self._known.get(file)
        if known is None:
            known = self._known[file] = self._looks_user(file)
        return known

    def _looks_user(self, file: str) -> bool:
        if file in cells_of_shell():
            return True
        if file.startswith("<"):
            return file == "<string>" or file.startswith(("<stdin", "<ipython"))
        if file == self._main:
            return True
        path = real_path(file)
        return (
            self._root != ""
            and path.startswith(self._root)
            and not path.startswith((OUR_FILES, *self._standard))
            and not is_installed(file)
            and not is_installed(path)
        )


def _sites(
    live: _Totals, before: _Totals, attribution: _Attribution, top: int
) -> tuple[list[Site], int]:
    charged: dict[_Frame, list[int]] = {}
    for traceback, (size, count) in live.items():
        old_size, old_count = before.get(traceback, (0, 0))
        line = attribution.line(traceback)
        if line is not None and size > old_size:
            sums = charged.setdefault(line, [0, 0])
            sums[0] += size - old_size
            sums[1] += max(0, count - old_count)
    ranked = sorted(charged.items(), key=lambda item: item[1][0], reverse=True)
    sites = [
        Site(file=file, line=line, bytes=size, count=count)
        for (file, line), (size, count) in ranked[:top]
    ]
    return sites, sum(size for size, _ in charged.values())


def read_traces() -> list[_Trace] | None:
    """What is alive, block by block; None if nobody traces or there is too much to look at.

    Raw, since a :class:`tracemalloc.Snapshot` makes three more objects of every block.
    """
    if not tracemalloc.is_tracing() or tracemalloc.get_tracemalloc_memory() > _MOST_OVERHEAD:
        return None
    return _raw_traces()


def summed(traces: list[_Trace] | None) -> _Totals | None:
    """Return bytes and blocks by traceback."""
    if traces is None:
        return None
    # By identity first: hashing a traceback costs ten times more, and those that are equal are
    # nearly always one object.
    sums: dict[int, tuple[_Traceback, list[int]]] = {}
    for _, size, traceback, _ in traces:
        known = sums.get(id(traceback))
        if known is None:
            sums[id(traceback)] = (traceback, [size, 1])
        else:
            known[1][0] += size
            known[1][1] += 1
    totals: _Totals = {}
    for traceback, (size, count) in sums.values():
        total = totals.setdefault(traceback, [0, 0])
        total[0] += size
        total[1] += count
    return totals


_raw_traces: Callable[[], list[_Trace]] = getattr(tracemalloc, "_get_traces", list)

_traces_for_us = False


def _start(frames: int) -> None:
    global _traces_for_us
    _traces_for_us = True  # before it does: what breaks in must find it so
    with raw_allocator_kept():
        tracemalloc.start(frames)


def _stop() -> None:
    global _traces_for_us
    tracemalloc.stop()
    _traces_for_us = False


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
        """Return how many blocks were handed out while it counted: only differences tell."""
        return _counting.counted() if self.is_counting else 0

    def arm(self, more: int, function: Callable[[], object]) -> None:
        """Have the main thread call ``function`` after so many more blocks, once."""
        if self.is_counting:
            _counting.arm(more, function)

    def disarm(self) -> None:
        """Cancel the call."""
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
        try:
            with raw_allocator_kept():
                tracemalloc.start(frames)
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


def _stop_in_child() -> None:
    # A worker forked inside a window would pay for tracing and counting as long as it lives.
    if _traces_for_us:
        _stop()
    if _counting is not None:
        _counting.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stop_in_child)
