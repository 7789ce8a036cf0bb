"""Fragmentation: free device memory in holes between live blocks, which nothing gives back.

Finds: stuck bytes that grow, or that are a large part of what the allocator holds all the time.

How: from the block lists recorded with censuses: inactive bytes in segments that are in use. Where
the largest hole is smaller than the largest live block, a request of a size that the program makes
can't be served from all that free memory. Reserved minus allocated is not it.

May be confused with: cache (wholly free segments, `device_cache`); a leak, whose blocks leave holes
between them (live memory then grows as well); and holes that the next step fills again, which are
the price of its peak: at the peak nearly all reserved memory was live.

Costs nothing beyond the block lists.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.cuda.slack import settings_advice
from leakscope.analysis.devices.series import (
    DeviceSeries,
    device_series,
    has_risen_by,
    latest,
    peak_figures,
)
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import MIB
from leakscope.model import gauge
from leakscope.model.record import DeviceSnapshotRecord
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_share
from leakscope.model.trend import Trend

GROWTH_BYTES = 64 * MIB
LIVE_SHARE = 0.3
"""More live growth than this part of the holes' and they are the leak's, not the allocator's."""
LARGE_BYTES = 64 * MIB
LARGE_SHARE = 0.10
WELL_USED = 0.9
"""With this part of the reserved memory live at the peak, holes are filled by each step."""
_HOW = " It is set in the environment: PYTORCH_CUDA_ALLOC_CONF."

REMEDY = Remedy(
    title="Let segments grow instead of multiplying",
    text=(
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; pad or bucket inputs of varying "
        "size. torch.cuda.empty_cache() returns only segments that are wholly free."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each device whose free memory is stuck between live blocks."""
    return [f for d in case.track.devices if (f := _of_device(case, d)) is not None]


def _of_device(case: Case, device: str) -> Finding | None:
    series = device_series(case, device)
    if series.last is None:
        return None
    trend = case.trend_of(series.done, series.stuck())
    if _grows(case, device, trend):
        return _growing(case, device, series.last, trend)
    return _steady(case, device, series)


def _grows(case: Case, device: str, trend: Trend) -> bool:
    live = has_risen_by(case, device, gauge.DEVICE_ALLOCATED)
    return (
        trend.is_growing
        and trend.net_bytes >= GROWTH_BYTES
        and live <= LIVE_SHARE * trend.net_bytes
    )


def _growing(case: Case, device: str, last: DeviceSnapshotRecord, trend: Trend) -> Finding:
    is_useless = last.largest_hole < last.largest_live
    stuck = last.stuck - last.releasable
    return finding(
        "fragmentation",
        f"Free device memory is fragmented on {device}",
        f"Bytes stuck in holes between live blocks grew by {human_bytes(trend.net_bytes)} to "
        f"{human_bytes(stuck)}, of {human_bytes(last.reserved)} reserved. {_hole(last)}",
        _remedy(case, device),
        severity=Severity.WARNING if is_useless else Severity.NOTE,
        trend=trend,
        total_bytes=stuck,
        device=device,
        falsifier=("empty_cache() would return it if it were plain cache.", None),
    )


def _steady(case: Case, device: str, series: DeviceSeries) -> Finding | None:
    """Return a note on holes that are there all the time, unless each step's peak fills them."""
    last = series.last
    stuck = float(min(series.stuck(), default=0.0))
    peak = latest(case, device, gauge.DEVICE_PEAK)
    if last is None or len(series.snapshots) < 2 or peak >= WELL_USED * last.reserved:
        return None
    if stuck < LARGE_BYTES or stuck < LARGE_SHARE * last.reserved:
        return None
    return finding(
        "fragmentation",
        f"Free device memory is fragmented on {device}",
        f"At every block list at least {human_bytes(stuck)} were stuck in holes between live "
        f"blocks ({human_share(stuck / last.reserved)} of what is reserved). {_hole(last)}",
        _remedy(case, device),
        severity=Severity.NOTE,
        total_bytes=stuck,
        device=device,
        growth="constant",
    )


def _remedy(case: Case, device: str) -> Remedy:
    """Return the setting that would have helped by the blocks of this run, with the evidence."""
    state = case.device_states.get(device)
    if state is None:
        return REMEDY
    peak = peak_figures(case, device, state.figures)
    advice = settings_advice(
        state.segments, state.figures, peak, state.record.settings, is_steady=True
    )
    best = next((item for item in advice if item.helps), None)
    if best is None:
        return REMEDY
    return Remedy(
        title=f"Try {best.title}",
        text=f"{best.evidence}{_HOW if ':' in best.title else ''} Padding or bucketing inputs of "
        "varying size helps too.",
    )


def _hole(last: DeviceSnapshotRecord) -> str:
    compared = "smaller than" if last.largest_hole < last.largest_live else "enough for"
    return (
        f"The largest free block has {human_bytes(last.largest_hole)}, {compared} the largest live "
        f"one of {human_bytes(last.largest_live)}."
    )
