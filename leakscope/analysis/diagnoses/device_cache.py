"""The caching allocator's cache grows: reserved memory rises, live tensors do not.

Finds: segments that are wholly free and were once used by larger inputs. Harmless for the program,
which uses them again; not for another process on the same device.

How: the trend of reserved bytes against live bytes; the block lists tell free segments from holes.

May be confused with: fragmentation (holes grow, see `device_fragmentation`), private pools of CUDA
graphs (see `private_pools`), and a cache that fills in the first steps, which levels off.

Costs nothing beyond gauges and the block lists that are recorded with censuses.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.devices.series import device_series, has_risen_by, latest, private_growth
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import MIB
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes
from leakscope.model.trend import Trend

GROWTH_BYTES = 64 * MIB
OTHER_SHARE = 0.3
"""More growth of live tensors, holes or private pools than this, and the cause is another."""

REMEDY = Remedy(
    title="Nothing, unless another process needs the memory",
    text=(
        "torch.cuda.empty_cache() returns wholly free segments, at the price of asking the driver "
        "again. Inputs of varying size grow the cache: pad or bucket them, or warm up with the "
        "largest one first."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each device whose cache outgrows its live tensors."""
    return [f for d in case.track.devices if (f := _of_device(case, d)) is not None]


def _of_device(case: Case, device: str) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_RESERVED}"
    trend = case.gauge_trend(metric)
    if not trend.is_growing:
        return None
    series = device_series(case, device)
    holes = series.gain("stuck") - series.gain("releasable")
    live = has_risen_by(case, device, gauge.DEVICE_ALLOCATED)
    others = max(live, 0.0) + max(holes, 0.0) + max(private_growth(case, device), 0.0)
    if trend.net_bytes < GROWTH_BYTES or others > OTHER_SHARE * trend.net_bytes:
        return None
    return _finding(case, device, trend, live, latest(case, device, gauge.DEVICE_RESERVED))


def _finding(case: Case, device: str, trend: Trend, live: float, reserved: float) -> Finding:
    is_told = device_series(case, device).last is not None
    kept = (
        "the rest is free memory that the caching allocator keeps for the next request"
        if is_told
        else "the rest is free memory that the caching allocator keeps, as cache or in holes"
    )
    return finding(
        "device_cache",
        f"The device cache grows on {device}",
        f"Reserved memory grew by {human_bytes(trend.net_bytes)}, live tensors by "
        f"{human_bytes(live)}: {kept}.",
        REMEDY,
        severity=Severity.NOTE if is_told else Severity.WARNING,
        trend=trend,
        total_bytes=reserved,
        device=device,
        falsifier=("empty_cache() would return it if it were plain cache.", None),
    )
