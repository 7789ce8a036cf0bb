"""Child processes grow: DataLoader workers or other processes that were started.

May be confused with: workers that touch a shared dataset for the first time (copy on write), which
levels off; and workers that are started anew in each epoch, which is a sawtooth.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.growth import policy
from leakscope.analysis.search import Growth
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_count

UNREAD_AT_THE_END = 0.15
"""Where the last reading lies further before the end of the work, other figures say more."""

REMEDY = Remedy(
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


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
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
        finding(
            "children",
            "Child processes grow",
            f"Together they gained {human_bytes(trend.net_bytes)} and held up to "
            f"{human_bytes(most)}; {human_bytes(trend.bytes_per_unit)} more per {trend.unit}."
            f"{_where_read(case)}",
            REMEDY if has_workers else OTHERS,
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


def _where_read(case: Case) -> str:
    """Return over which part of the work they were read, where that was not to the end."""
    x, _ = case.gauge_series(gauge.CHILDREN_PSS)
    whole = case.work_done[case.working]
    if whole[-1] - x[-1] <= UNREAD_AT_THE_END * (whole[-1] - whole[0]):
        return ""
    first, last, end = (human_count(count) for count in (x[0], x[-1], whole[-1]))
    return f" They were read from {case.unit.name} {first} to {last} of {end} only."
