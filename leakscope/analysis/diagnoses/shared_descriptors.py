"""File descriptors of shared memory that pile up: every tensor that a worker sent keeps one.

By the sharing strategy ``file_descriptor``, torch's own on Linux, a tensor from another process
holds its memory by a descriptor as long as it lives. Batches that are kept so lead to ``Too many
open files``, often long before memory runs out (https://github.com/pytorch/pytorch/issues/11201).

May be confused with: batches on their way, whose number is bounded; files of the program's own,
which lie elsewhere.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.growth import judge, policy
from leakscope.analysis.search import Growth
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_count
from leakscope.model.trend import Trend

FEWEST = 20
MOST_NAMED = 3
SAME_PACE = 0.5
"""What gains at least this part of as many items as there come descriptors may hold them."""

REMEDY = Remedy(
    title="Keep copies of batches, not the batches",
    text=(
        "Store batch.clone() (or numbers computed from it) where batches are kept: the clone is "
        "ordinary memory and the descriptor is closed. ulimit -n raises the limit; "
        "torch.multiprocessing.set_sharing_strategy('file_system') needs no descriptors but leaves "
        "files in /dev/shm when a process is killed."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding when descriptors of shared memory become ever more."""
    trend = _trend(case)
    if not _piles_up(trend):
        return []
    last = len(case.track) - 1
    limit = case.nearest(gauge.OPEN_FILES_LIMIT, last)
    text = (
        f"{human_count(trend.net_bytes)} more descriptors of shared memory than at the beginning, "
        f"{human_count(trend.bytes_per_unit)} per {trend.unit}: each belongs to a tensor that a "
        "worker sent and that is still alive."
    )
    names = _names(case, growth, trend)
    if names:
        text += f" {', '.join(names)} {'gain' if len(names) > 1 else 'gains'} items as fast."
    if limit:
        text += f" Of {human_count(limit)} that may be open {human_count(_open(case))} were."
    return [
        finding(
            "shared_descriptors",
            "File descriptors of shared memory pile up",
            text,
            REMEDY,
            severity=Severity.WARNING if _is_near(case, trend, limit) else Severity.NOTE,
            falsifier=("If they were on their way, they would be closed at the next epoch.", None),
            subject=",".join(names),
        )
    ]


def descriptors_pile_up(case: Case) -> bool:
    """Return whether most of the files that a process opens more and more are shared memory."""
    trend = _trend(case)
    x, y = case.gauge_series(gauge.OPEN_FILES)
    files = judge(x, y, unit=case.unit.name, noise=0.5)
    return _piles_up(trend) and trend.net_bytes >= SAME_PACE * files.net_bytes


def _trend(case: Case) -> Trend:
    x, y = case.gauge_series(gauge.SHARED_DESCRIPTORS)
    return judge(x, y, unit=case.unit.name, noise=0.5)


def _piles_up(trend: Trend) -> bool:
    return trend.is_growing and trend.net_bytes >= FEWEST


def _names(case: Case, growth: Growth, trend: Trend) -> list[str]:
    """Return what gains items at least half as fast."""
    across = [g for g in growth.growers if g.growth == "across" and g.items_per_unit]
    units = max(float(case.work_done[-1] - case.work_done[0]), 1.0)
    wanted = SAME_PACE * trend.bytes_per_unit * units
    fast = [g for g in across if (g.items_per_unit or 0.0) * g.units >= wanted]
    return [case.table.latest[g.path].name for g in fast][:MOST_NAMED]


def _open(case: Case) -> float:
    """Return the most files that were open: a program that ends has closed them."""
    return float(np.nanmax(case.track.gauge(gauge.OPEN_FILES), initial=0.0))


def _is_near(case: Case, trend: Trend, limit: float | None) -> bool:
    """Return whether ten such runs would open more files than the process may."""
    return bool(limit) and _open(case) + policy.HORIZON * trend.net_bytes >= (limit or 0.0)
