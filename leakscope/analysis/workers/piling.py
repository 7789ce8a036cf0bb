"""Worker processes that pile up: their loaders live on, and with each of them its workers.

A DataLoader with ``persistent_workers=True`` that is made anew in each epoch and kept, iterators
that something holds, pools that nobody closes. In Python they weigh some kilobytes, so a census
names the container that gathers them and calls it small; each process beside them is not.

May be confused with: loaders for training, validation and test that start their workers one after
the other, which ends; loaders that are dropped, whose workers end with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.growth import policy
from leakscope.analysis.series import HOST, FloatArray
from leakscope.analysis.severity import MIB
from leakscope.model import gauge
from leakscope.model.known import Recognised
from leakscope.model.report import Culprit, Finding, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_count
from leakscope.model.trend import Trend

FEWEST = 4
"""So many processes must have come since the warm-up."""
GROWTH_BYTES = 32 * MIB
REPLACES = frozenset({"children", "processes"})
"""Kinds of findings that say less of the same."""
KEEPERS = {
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter": "iterators of DataLoaders",
    "torch.utils.data.dataloader.DataLoader": "DataLoaders",
    "multiprocessing.pool.Pool": "pools",
    "concurrent.futures.process.ProcessPoolExecutor": "executors",
}
"""Types that keep processes alive, and what several are called."""

ONE_LOADER = Remedy(
    title="Make one DataLoader before the loop",
    text=(
        "A loader keeps its workers as long as it or its iterator lives. Make it once and iterate "
        "over it in every epoch (persistent_workers=True then saves starting them), or let go of "
        "loaders and iterators that are done."
    ),
)
ONE_POOL = Remedy(
    title="Make one pool, or close each",
    text=(
        "Make the pool once outside the loop, or use it in a `with` block (of multiprocessing: "
        "close() and join() it) so that its processes end."
    ),
)


@dataclass(frozen=True)
class Keeper:
    """What gathers what keeps processes alive."""

    name: str
    path: str
    fed_at: list[str]
    known: Recognised | None
    plural: str
    count: int
    """How many of them had a row at last: the heavier ones."""


def find_piling(case: Case, culprits: list[Culprit]) -> list[Finding]:
    """Return a finding when the number of processes grows, with what keeps them if it is known."""
    trend = case.gauge_trend(gauge.CHILDREN, policy.COUNT_NOISE)
    if not trend.is_growing or trend.net_bytes < FEWEST:
        return []
    memory = case.gauge_trend(gauge.CHILDREN_PSS, noise=4.0 * MIB)
    keeper = _keeper(case, culprits) or _small_keeper(case)
    is_told = keeper is not None or _are_workers_that_grow(case, memory)
    return [_finding(case, trend, memory, keeper)] if is_told else []


def _are_workers_that_grow(case: Case, memory: Trend) -> bool:
    """Return whether loaders started them, and there is so much to them that a name is missed."""
    has_workers = any(r.header.worker is not None for r in case.run.recordings)
    return has_workers and memory.is_growing and memory.net_bytes >= GROWTH_BYTES


def _keeper(case: Case, culprits: list[Culprit]) -> Keeper | None:
    """Return the culprit through which most objects are named that keep processes alive."""
    found = [
        (Keeper(one.name, one.path, one.fed_at, one.known, plural, count), len(one.path))
        for path, plural, count in _gathered(case)
        for one in culprits
        if one.growth == "across" and case.table.latest[path].path.startswith(one.path)
    ]
    return max(found, key=lambda one: (one[0].count, -one[1]), default=(None, 0))[0]


def _small_keeper(case: Case) -> Keeper | None:
    """Return the nearest container that gains items, of kilobytes and so no culprit."""
    table, found = case.table, []
    for path, plural, count in _gathered(case):
        owners = [n for n in [*table.ancestors(path), path] if _gains(table.length[n])]
        if not owners or count < FEWEST:
            continue
        row = table.latest[owners[-1]]
        lines = case.sources.feeding(row.owner, row) if row.owner is not None else []
        fed = dict.fromkeys(case.sources.location(one.file, one.line) for one in lines)
        found.append(Keeper(row.name, row.path, list(fed), None, plural, count))
    return max(found, key=lambda one: (one.count, -len(one.path)), default=None)


def _gathered(case: Case) -> list[tuple[int, str, int]]:
    """Return the rows of what keeps processes alive and has become more: what several are called,
    and how many had a row at last.
    """
    table, found = case.table, []
    for path, row in enumerate(table.latest):
        plural = KEEPERS.get(row.type)
        if plural is not None and _gains(table.count[path]):
            counts = table.count[path][np.isfinite(table.count[path])]
            found.append((path, plural, int(counts[-1])))
    return found


def _gains(counts: FloatArray) -> bool:
    known = counts[np.isfinite(counts)]
    return len(known) > 1 and bool(known[-1] > known[0])


def _finding(case: Case, count: Trend, memory: Trend, keeper: Keeper | None) -> Finding:
    processes = float(np.nanmax(case.track.gauge(gauge.CHILDREN)))
    most = float(np.nanmax(case.track.gauge(gauge.CHILDREN_PSS)))
    each = most / max(processes, 1.0)
    gained = max(memory.net_bytes, count.net_bytes * each)
    rate = count.bytes_per_unit * each
    limit = case.limit_bytes or float("inf")
    fatal = case.used_at_end() + policy.HORIZON * gained >= limit
    serious = Severity.CRITICAL if fatal else Severity.WARNING
    title, text, falsifier, remedy = _told(keeper)
    return finding(
        "worker_processes",
        title,
        f"{human_count(processes)} child processes at last, {human_count(count.bytes_per_unit)} "
        f"more per {count.unit}; each takes {human_bytes(each)} (shared pages divided), all "
        f"together {human_bytes(most)}. {text}",
        remedy,
        severity=serious if gained >= GROWTH_BYTES else Severity.NOTE,
        trend=Trend(
            verdict=count.verdict,
            bytes_per_unit=rate,
            interval=(count.interval[0] * each, count.interval[1] * each),
            unit=count.unit,
            points=count.points,
            net_bytes=gained,
            reason=count.reason,
        ),
        total_bytes=most,
        device=HOST,
        known=keeper.known if keeper else None,
        fed_at=keeper.fed_at if keeper else [],
        falsifier=(falsifier, None),
        subject=keeper.path if keeper else "",
    )


def _told(keeper: Keeper | None) -> tuple[str, str, str, Remedy]:
    """Return title, reason, falsifier and remedy."""
    if keeper is not None:
        place = f" ({keeper.fed_at[0]})" if keeper.fed_at else ""
        return (
            f"Worker processes pile up: {keeper.name} keeps them alive",
            f"{keeper.name}{place} gathers {keeper.plural}, which keep their processes alive.",
            f"If {keeper.name} lets go of them, their processes end.",
            ONE_LOADER if "DataLoader" in keeper.plural else ONE_POOL,
        )
    return (
        "Worker processes pile up",
        "No census shows what keeps their loaders alive.",
        "If as many ended as are started, memory would stay.",
        ONE_LOADER,
    )
