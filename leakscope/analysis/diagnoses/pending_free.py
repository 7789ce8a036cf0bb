"""Memory that the program has freed and another stream still uses: it waits to be free.

Finds: blocks that `record_stream` keeps until the other stream's work is done, when much of that
lies about at the boundaries: the stream runs behind, or collectives hold their inputs.

How: active less allocated bytes, by the allocator's own count.

May be confused with: a leak, by anyone who looks at reserved memory; some pending bytes in the
middle of a step are ordinary. Hence only what is pending at comparable boundaries counts, and a
level is a note.

Costs nothing beyond the gauges.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.devices.series import latest
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.growth import policy
from leakscope.analysis.search import Growth
from leakscope.analysis.series import INNER
from leakscope.analysis.severity import MIB
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_share

LARGE_BYTES = 64 * MIB
LARGE_SHARE = 0.10

REMEDY = Remedy(
    title="Wait for the other stream before letting go",
    text=(
        "Instead of tensor.record_stream(stream), keep the tensor and let the current stream wait "
        "(torch.cuda.current_stream().wait_stream(stream)) before it is deleted. With NCCL in "
        "older releases, TORCH_NCCL_AVOID_RECORD_STREAMS=1 does so for collectives."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each device on which much memory waits to be free."""
    return [f for d in case.track.devices if (f := _of_device(case, d)) is not None]


def _usual(case: Case, metric: str) -> float:
    """Return what usually waits at boundaries, also between phases: in a step much may."""
    values = case.track.gauge(metric)
    read = case.working[np.isfinite(values[case.working])]
    inner = np.isin(case.track.kind[read], INNER)
    usual = [np.median(values[read[where]]) for where in (inner, ~inner) if where.any()]
    return float(min(usual, default=0.0))


def _of_device(case: Case, device: str) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_PENDING}"
    _, y = case.gauge_series(metric)
    usual = _usual(case, metric)
    reserved = latest(case, device, gauge.DEVICE_RESERVED)
    if len(y) < policy.FEWEST_GROWING or usual < max(LARGE_BYTES, LARGE_SHARE * reserved):
        return None
    trend = case.gauge_trend(metric)
    grows = trend.is_growing and trend.net_bytes >= LARGE_BYTES
    return finding(
        "pending_free",
        f"Freed memory waits for another stream on {device}",
        f"At boundaries {human_bytes(usual)} ({human_share(usual / max(reserved, 1))} of what is "
        "reserved) were freed by the program and still in use on another stream"
        + (f"; it grew by {human_bytes(trend.net_bytes)}." if grows else "."),
        REMEDY,
        severity=Severity.WARNING if grows else Severity.NOTE,
        trend=trend if grows else None,
        total_bytes=float(y.max()),
        device=device,
        growth="across" if grows else "constant",
        falsifier=("torch.cuda.synchronize() would free it.", None),
    )
