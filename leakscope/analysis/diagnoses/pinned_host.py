"""Page-locked host memory that torch's cache of it keeps and that grows.

Finds: pinned buffers that are kept, or a cache that can't use its blocks again because sizes vary;
each is rounded up to a power of two.

How: the bytes that torch's pinned allocator owns, by its own count.

May be confused with: a DataLoader with `pin_memory=True` that fills the cache in its first batches,
which levels off.

Costs nothing beyond the gauge.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import MIB
from leakscope.analysis.trends import goes_on, is_growth
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes

GROWTH_BYTES = 32 * MIB
LONG_POINTS = 6

REMEDY = Remedy(
    title="Pin a few buffers and use them again",
    text=(
        "Pin buffers of fixed size once and copy into them, pad batches to equal sizes, and don't "
        "gather pinned tensors (x.cpu() of results needs no pinning). torch rounds each pinned "
        "block up to a power of two and keeps it when it is freed."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding when page-locked memory grows steadily."""
    trend = case.gauge_trend(gauge.PINNED_HOST)
    _, y = case.gauge_series(gauge.PINNED_HOST)
    if not is_growth(trend.verdict) or trend.points < LONG_POINTS:
        return []
    if trend.net_bytes < GROWTH_BYTES or not goes_on(y):
        return []
    resident = case.gauge_gain(case.host_metric) or 0.0
    return [
        finding(
            "pinned_host",
            "Page-locked host memory grows",
            f"Pinned memory that torch owns grew by {human_bytes(trend.net_bytes)} to "
            f"{human_bytes(float(y[-1]))}. It can't be swapped, and torch keeps what is freed.",
            REMEDY,
            severity=Severity.WARNING,
            trend=trend,
            share=trend.net_bytes / resident if resident > 0 else 0.0,
            total_bytes=float(y[-1]),
            confidence=0.8,
            falsifier=("A warm-up would have ended within the run.", "It went on in each third."),
        )
    ]
