"""Threads that calls start and that don't end, told once.

Each thread is in several lists of the standard library's, and its frames hold what it works on: all
of that grows by one for each, and none of it is the leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from leakscope.analysis.growers import Grower
from leakscope.analysis.series import RowTable

PATH = "threading·_active"
"""Where the interpreter lists the threads that run."""
HOLDER = "What running threads hold (threading._active)"
ADVICE = "Let threads end: join them, shut their pool down, or reuse one"
_IN_FUNCTION = "()·"
"""What the path of a running function's local variable has after its name."""
_LISTS = frozenset(
    {
        PATH,
        "threading·_dangling.data",
        "threading·_shutdown_locks",
        "concurrent.futures.thread·_threads_queues",
    }
)


def with_threads_once(table: RowTable, growers: Sequence[Grower]) -> list[Grower]:
    """Return growers, those that are there once for each running thread as one of them all."""
    running = next((g for g in growers if table.latest[g.path].path == PATH), None)
    if running is None:
        return list(growers)
    theirs = [g for g in growers if _is_of_threads(table, g, running)]
    others = [g for g in growers if g not in theirs]
    rate = sum(g.trend.bytes_per_unit for g in theirs)
    whole = replace(
        running,
        trend=msgspec.structs.replace(running.trend, bytes_per_unit=rate, interval=(rate, rate)),
        gained=sum(g.gained for g in theirs),
    )
    return sorted([whole, *others], key=lambda g: (-g.trend.bytes_per_unit, g.path))


def _is_of_threads(table: RowTable, grower: Grower, running: Grower) -> bool:
    row = table.latest[grower.path]
    if row.path in _LISTS:
        return True
    count = np.nan_to_num(table.count[grower.path, running.columns])
    started = (running.items_per_unit or 0.0) * running.units
    return _IN_FUNCTION in row.path and bool(round(count[-1] - count[0]) == round(started))
