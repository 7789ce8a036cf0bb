"""Live device memory that grows and that no name explains.

Finds: allocated bytes that rise from boundary to boundary while the names that a census found on
the device hold less than they should: tensors kept by native code, by an autograd graph that only
C++ refers to, by a buffer of a library.

How: the trend of the allocator's own count, less what the culprits of that device gain.

May be confused with: optimizer state at the first step (one jump), caches by shape (they level
off), garbage in cycles (it falls back), and a culprit whose censuses lie elsewhere than the gauges.
Hence growth must go on through all thirds of the run, and be mostly unnamed.

Costs nothing beyond the gauges.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.devices.owners import find_owners, unexplained_rows
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.diagnoses.unexplained import goes_on
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import MIB
from leakscope.analysis.trends import is_growth
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_count, human_share

GROWTH_BYTES = 32 * MIB
UNNAMED_SHARE = 0.4
LONG_POINTS = 8

REMEDY = Remedy(
    title="Find what allocates it: --cuda-history window",
    text=(
        "With that option of `leakscope run` the report has the lines that allocated what stays. "
        "Tensors without a Python name are kept by autograd graphs, by exceptions that were raised "
        "in backward(), by communication buffers or by C++ extensions."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each device on which unnamed live memory grows."""
    return [f for d in case.track.devices if (f := _of_device(case, growth, d)) is not None]


def _blocks(case: Case, device: str) -> str:
    """Return which blocks nothing explained where they were listed."""
    state = case.device_states.get(device)
    rows = [] if state is None else unexplained_rows(find_owners(state).blocks)
    if not rows:
        return ""
    places = f", allocated at {rows[0].allocated_at}" if rows[0].allocated_at else ""
    return (
        f" Most of what had no owner when its blocks were listed: {human_count(rows[0].count)} "
        f"of {human_bytes(rows[0].size)}{places}."
    )


def _of_device(case: Case, growth: Growth, device: str) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_ALLOCATED}"
    trend = case.gauge_trend(metric)
    if not is_growth(trend.verdict) or trend.points < LONG_POINTS:
        return None
    across = [g for g in growth.growers if g.growth == "across" and g.device == device]
    named = sum(case.gain_of(g) for g in across)
    left = trend.net_bytes - named
    _, y = case.gauge_series(metric)
    if left < max(GROWTH_BYTES, UNNAMED_SHARE * trend.net_bytes) or not goes_on(y):
        return None
    share = left / trend.net_bytes
    return finding(
        "device_leak",
        f"Live memory without a name grows on {device}",
        f"Live tensors grew by {human_bytes(trend.net_bytes)}; {human_bytes(left)} of that "
        f"({human_share(share)}) is held by nothing that a census found: it is neither the "
        f"allocator's cache nor fragmentation.{_blocks(case, device)}",
        REMEDY,
        severity=Severity.WARNING,
        trend=trend,
        share=share,
        total_bytes=left,
        device=device,
        confidence=0.6,
        falsifier=("A warm-up would have ended within the run.", "It went on in each third."),
    )
