"""Private pools that grow: a CUDA graph captured for each new shape, or a ``MemPool`` kept.

Finds: memory reserved in pools of their own, which is never given to other requests.

How: torch's count of private pools, or the block lists of releases that have none.

May be confused with: the captures of a warm-up, after which the pools stay as they are; a server or
`torch.compile(mode="reduce-overhead")` that captures some shapes and then no more. Hence growth
must go on through all thirds of the run.

Costs nothing beyond the gauges.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.devices.series import device_series, snapshot_trend
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.analysis.series import FloatArray
from leakscope.analysis.severity import MIB
from leakscope.analysis.trends import goes_on, is_growth
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, plural
from leakscope.model.trend import Trend

GROWTH_BYTES = 32 * MIB
LONG_POINTS = 6

REMEDY = Remedy(
    title="Capture for a few shapes only",
    text=(
        "Each capture of a CUDA graph keeps a pool as large as its step. Pad inputs to some fixed "
        "shapes, capture those once, let captures share a pool (torch.cuda.graph(…, pool=…)), and "
        "let go of graphs and MemPool objects that are no longer replayed. With torch.compile: "
        "mark_dynamic, or a mode without cudagraphs for shapes that vary."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each device whose private pools grow."""
    return [f for d in case.track.devices if (f := _of_device(case, d)) is not None]


def _of_device(case: Case, device: str) -> Finding | None:
    trend, y = _series(case, device)
    if not is_growth(trend.verdict) or trend.points < LONG_POINTS:
        return None
    if trend.net_bytes < GROWTH_BYTES or not goes_on(y):
        return None
    last = device_series(case, device).last
    pools = f" in {plural(last.private_pools, 'pool')}" if last and last.private_pools else ""
    return finding(
        "private_pools",
        f"Private memory pools grow on {device}",
        f"Memory reserved by CUDA graphs or MemPool grew by {human_bytes(trend.net_bytes)} to "
        f"{human_bytes(float(y[-1]))}{pools}; no other request can use it.",
        REMEDY,
        severity=Severity.WARNING,
        trend=trend,
        total_bytes=float(y[-1]),
        device=device,
        confidence=0.8,
        falsifier=("A warm-up would have ended within the run.", "It went on in each third."),
    )


def _series(case: Case, device: str) -> tuple[Trend, FloatArray]:
    metric = f"{device}.{gauge.DEVICE_PRIVATE}"
    if case.track.has_gauge(metric):
        return case.gauge_trend(metric), case.gauge_series(metric)[1]
    series = device_series(case, device)
    return snapshot_trend(case, series, "private"), series.of("private")
