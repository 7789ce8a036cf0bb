"""Growth of other processes and of what they share: children, a watched tree, files."""

from __future__ import annotations

import numpy as np

from leakscope.analysis.columns.series import FloatArray
from leakscope.analysis.growth import policy
from leakscope.analysis.growth.search import SearchResult
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source.index import places_that_call
from leakscope.analysis.verdict.severity import MIB, forecast
from leakscope.analysis.verdict.wording import to_finding
from leakscope.model import gauge
from leakscope.model.census import SHARED
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.text import human_bytes, human_count
from leakscope.model.trend import Trend

UNREAD_AT_THE_END = 0.15
"""Where the last reading lies further before the end of the work, other figures say more."""

CHILDREN_REMEDY = Remedy(
    title="Look into the workers",
    text=(
        "What a Dataset appends to itself in __getitem__, or an IterableDataset to a buffer in "
        "__iter__, grows in every worker. Hold large "
        "tables as one numpy array or tensor instead of many Python objects, so that "
        "reference counts don't copy their pages."
    ),
)

OTHERS = Remedy(
    title="Look into the processes that were started",
    text=(
        "None of them is a recorded DataLoader worker. What is sent to a process and kept there "
        "grows in it: a multiprocessing Manager's list, a pool's cache, a logger's or a server's "
        "queue. Empty it from time to time, or send only what is needed later."
    ),
)


def diagnose_children(
    case: RunContext, growth: SearchResult, ledgers: list[Ledger]
) -> list[Finding]:
    """Return a finding when the memory of child processes grows steadily."""
    trend = case.gauge_trend(gauge.CHILDREN_PSS, noise=policy.CHILDREN_NOISE_BYTES)
    if not trend.is_growing or trend.net_bytes < policy.UNNAMED_BYTES:
        return []
    done, _ = case.gauge_series(gauge.CHILDREN_PSS)
    work = case.work_done[case.working]
    if done[-1] - done[0] < policy.REACHES * (work[-1] - work[0]):
        return []  # they may have rested since
    most = float(np.nanmax(case.track.gauge(gauge.CHILDREN_PSS)))  # they may be gone at the end
    limit = case.limit_bytes or float("inf")
    fatal = case.used_at_end() + policy.HORIZON * trend.net_bytes >= limit
    has_workers = any(r.header.worker is not None for r in case.run.recordings)
    whole = (case.gauge_gain(case.host_metric) or 0.0) + case.children_gain()
    return [
        to_finding(
            "children",
            "Child processes grow",
            f"Together they gained {human_bytes(trend.net_bytes)} and held up to "
            f"{human_bytes(most)}; {human_bytes(trend.bytes_per_unit)} more per {trend.unit}."
            f"{_where_read(case)}",
            CHILDREN_REMEDY if has_workers else OTHERS,
            severity=Severity.CRITICAL if fatal else Severity.WARNING,
            trend=trend,
            share=trend.net_bytes / whole if whole > 0 else 0.0,
            total_bytes=most,
            falsifier=(
                "With num_workers=0 the growth moves to the main process, or ends."
                if has_workers
                else "Without those processes it ends.",
                None,
            ),
        )
    ]


def _where_read(case: RunContext) -> str:
    """Return over which part of the work they were read, where that was not to the end."""
    x, _ = case.gauge_series(gauge.CHILDREN_PSS)
    whole = case.work_done[case.working]
    if whole[-1] - x[-1] <= UNREAD_AT_THE_END * (whole[-1] - whole[0]):
        return ""
    first, last, end = (human_count(count) for count in (x[0], x[-1], whole[-1]))
    return f" They were read from {case.unit.name} {first} to {last} of {end} only."


WATCHED_GROWTH_BYTES = 32 * MIB
FEWEST_WATCHED_READINGS = 8
"""Readings below which growth may as well be a beginning."""
MOSTLY = 0.6
"""Part of the growth from which on it is said to be of the process or of its children."""
MORE_THAN_ALL = 1.2

FROM_WITHIN = Remedy(
    title="Run it under leakscope to learn what grows",
    text=(
        "From outside nothing has a name. Put `leakscope run` in front of the command, or one "
        "`with leakscope.profile():` around the loop: the report then names what grows and the "
        "line that feeds it, in DataLoader workers too."
    ),
)


def diagnose_watched(
    case: RunContext, growth: SearchResult, ledgers: list[Ledger]
) -> list[Finding]:
    """Return a finding when the memory of a watched process tree grows steadily."""
    if not case.is_watched:
        return []
    x, y = tree_series(case)
    trend = case.trend_of(x, y, noise=4.0 * MIB)
    if (
        not trend.is_growing
        or trend.points < FEWEST_WATCHED_READINGS
        or trend.net_bytes < WATCHED_GROWTH_BYTES
    ):
        return []
    ahead = forecast(
        limit_bytes=case.limit_bytes,
        used_bytes=float(y[-1]),
        rate=trend.bytes_per_unit,
        unit=trend.unit,
        done=float(x[-1]),
    )
    watched = float(x[-1] - x[0])
    fatal = ahead is not None and ahead.units_left <= policy.HORIZON * watched
    ends = f" It {ahead.text} of watching." if ahead is not None and fatal else ""
    return [
        to_finding(
            "tree_grows",
            "The process and its children take ever more",
            f"{human_bytes(trend.bytes_per_unit)} more per {trend.unit}, "
            f"{human_bytes(trend.net_bytes)} in all{_part(case, trend)}.{ends}",
            FROM_WITHIN,
            severity=Severity.CRITICAL if fatal else Severity.WARNING,
            trend=trend,
            share=1.0,
            total_bytes=float(y.max()),
            falsifier=("A warm-up would have ended.", "It went on in each third."),
        )
    ]


def tree_series(case: RunContext) -> tuple[FloatArray, FloatArray]:
    """Return minutes and the memory of the process with all its children at each reading, without
    pages of files.
    """
    own = gauge.PSS if case.track.has_gauge(gauge.PSS) else gauge.RSS
    values = case.track.gauge(own) + np.nan_to_num(case.track.gauge(gauge.CHILDREN_PSS))
    values -= np.nan_to_num(case.track.gauge(gauge.TREE_FILES))
    values = values[case.working]
    known = np.isfinite(values)
    return case.unit.done[case.working][known], values[known]


def _part(case: RunContext, trend: Trend) -> str:
    """Return where it grows, where that is clear."""
    share = case.children_gain() / max(trend.net_bytes, 1.0)
    if share > MORE_THAN_ALL:  # children read files, which don't count in the whole
        return ""
    if share >= MOSTLY:
        return ", most of it in child processes"
    return ", most of it in the process itself" if share <= 1 - MOSTLY else ""


SHARED_MEMORY_GROWTH_BYTES = 16 * MIB
NAMED = 0.5
"""With so much of it under a name that is what to look at."""

SHARED_MEMORY_REMEDY = Remedy(
    title="Unlink what is created",
    text=(
        "Call close() in every process and unlink() once for each SharedMemory that is created. "
        "For tensors, torch.multiprocessing.set_sharing_strategy('file_descriptor') leaves no "
        "names behind. What is there already: ls -l /dev/shm."
    ),
)
FALSIFIER = (
    "If they were on their way, they would be gone at the next boundary; if another program of "
    "this user made them, they would come without this one, too."
)
PROBABLY_OF_OTHERS = (
    " Another program of this user has probably made them: this one had no child process to share "
    "them with."
)


def diagnose_shared_memory(
    case: RunContext, growth: SearchResult, ledgers: list[Ledger]
) -> list[Finding]:
    """Return a finding when named files of shared memory grow steadily and nothing holds them."""
    trend = case.gauge_trend(gauge.SHM_FILES)
    if not trend.is_growing or trend.net_bytes < SHARED_MEMORY_GROWTH_BYTES:
        return []
    if _named(case) >= NAMED * trend.net_bytes:
        return []
    most = float(np.nanmax(case.track.gauge(gauge.SHM_FILES)))  # some may be gone at the end
    limit = case.limit_bytes or float("inf")
    fatal = case.used_at_end() + policy.HORIZON * trend.net_bytes >= limit
    serious = Severity.CRITICAL if fatal else Severity.WARNING
    made_at = places_that_call(case.sources, {"shared_memory", ""}, {"SharedMemory"})
    is_its_own = bool(made_at) or not _has_no_children(case)
    return [
        to_finding(
            "shared_memory",
            "Files in shared memory pile up",
            f"{human_bytes(most)} of named files came to /dev/shm in this run, "
            f"{human_bytes(trend.bytes_per_unit)} per {trend.unit}; no name of the program holds "
            "them. Unless somebody removes them, they stay when it ends."
            + (PROBABLY_OF_OTHERS if not is_its_own else ""),
            SHARED_MEMORY_REMEDY,
            severity=serious if is_its_own else Severity.NOTE,
            trend=trend,
            total_bytes=most,
            fed_at=made_at,
            falsifier=(FALSIFIER, None),
        )
    ]


def _named(case: RunContext) -> float:
    """Return by how much the shared memory grew that has a name."""
    sizes = [census.payload_bytes.get(SHARED, 0) for census in case.table.censuses]
    return float(max(sizes) - sizes[0]) if sizes else 0.0


def _has_no_children(case: RunContext) -> bool:
    """Return whether the program is known to have had no child process."""
    return float(np.nanmax(case.track.gauge(gauge.CHILDREN), initial=-1.0)) == 0.0
