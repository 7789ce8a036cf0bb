"""Device memory that grows outside live tensors: the caching allocator's cache and its holes.

May be confused with: an allocator that fills its cache in the first steps, which levels off.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import MIB
from leakscope.analysis.trends import is_growth
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes

GROWTH_BYTES = 64 * MIB
LIVE_SHARE = 0.3
"""More live growth than this and the cause is a culprit, not the allocator."""
LONG_POINTS = 6

REMEDY = Remedy(
    title="Let segments grow instead of multiplying",
    text=(
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; sort or bucket inputs of "
        "varying size; torch.cuda.empty_cache() returns only segments that are wholly free."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each device whose reserved memory outgrows its live tensors."""
    return [f for d in case.track.devices if (f := _of_device(case, d, ledgers)) is not None]


def _of_device(case: Case, device: str, ledgers: list[Ledger]) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_RESERVED}"
    trend = case.gauge_trend(metric)
    live = case.gauge_gain(f"{device}.{gauge.DEVICE_ALLOCATED}") or 0.0
    if not is_growth(trend.verdict) or trend.points < LONG_POINTS:
        return None
    if trend.net_bytes < GROWTH_BYTES or live > LIVE_SHARE * trend.net_bytes:
        return None
    stuck = sum(
        e.bytes
        for ledger in ledgers
        if ledger.metric == metric
        for e in ledger.entries
        if e.kind == "fragmentation"
    )
    fragmented = stuck > 0.5 * trend.net_bytes
    title = "Free device memory is fragmented" if fragmented else "The device cache grows"
    return finding(
        "fragmentation" if fragmented else "device_cache",
        f"{title} on {device}",
        f"Reserved memory grew by {human_bytes(trend.net_bytes)}, live tensors by "
        f"{human_bytes(live)}: the rest is free memory that the caching allocator keeps.",
        REMEDY,
        severity=Severity.WARNING,
        trend=trend,
        total_bytes=case.nearest(metric, len(case.track) - 1) or 0.0,
        device=device,
        confidence=0.7,
        falsifier=("empty_cache() would return it if it were plain cache.", None),
    )
