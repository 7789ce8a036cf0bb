"""Child processes grow: DataLoader workers or other processes that were started.

May be confused with: workers that touch a shared dataset for the first time (copy on write), which
levels off; and workers that are started anew in each epoch, which is a sawtooth.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import HORIZON, MIB
from leakscope.analysis.trends import is_growth
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes

GROWTH_BYTES = 32 * MIB
LONG_POINTS = 6
EVEN = 0.8
"""In fewer epochs growth must be so even that the rate's interval reaches no lower than this part.
Pages that are copied on first touch come ever more slowly."""

REMEDY = Remedy(
    title="Look into the workers",
    text=(
        "What a Dataset appends to itself in __getitem__ grows in every worker. Hold large "
        "tables as one numpy array or tensor instead of many Python objects, so that "
        "reference counts don't copy their pages."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding when the memory of child processes grows steadily."""
    trend = case.gauge_trend(gauge.CHILDREN_PSS, noise_bytes=4.0 * MIB)
    if not is_growth(trend.verdict) or trend.net_bytes < GROWTH_BYTES:
        return []
    least = 0.0 if trend.points >= LONG_POINTS else EVEN * trend.bytes_per_unit
    if trend.interval[0] <= least:
        return []
    most = float(np.nanmax(case.track.gauge(gauge.CHILDREN_PSS)))  # they may be gone at the end
    limit = case.limit_bytes or float("inf")
    fatal = case.used_at_end() + HORIZON * trend.net_bytes >= limit
    whole = (case.gauge_gain(case.host_metric) or 0.0) + case.children_gain()
    return [
        finding(
            "children",
            "Child processes grow",
            f"Together they gained {human_bytes(trend.net_bytes)} and held up to "
            f"{human_bytes(most)}; {human_bytes(trend.bytes_per_unit)} more per {trend.unit}.",
            REMEDY,
            severity=Severity.CRITICAL if fatal else Severity.WARNING,
            trend=trend,
            share=trend.net_bytes / whole if whole > 0 else 0.0,
            total_bytes=most,
            confidence=0.7,
            falsifier=("With num_workers=0 the growth moves to the main process, or ends.", None),
        )
    ]
