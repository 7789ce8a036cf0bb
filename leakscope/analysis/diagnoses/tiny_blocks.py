"""Many tiny device blocks: scalars kept one by one, each rounded up to 512 bytes.

Finds: blocks whose number grows steadily while most of what they take is rounding: losses or
metrics kept as tensors on the device.

How: the allocator's count of blocks in use, and allocated less requested bytes.

May be confused with: step counters of an optimizer (at the first step, then constant). The bytes
are few: it is a note, and what gathers the tensors is a culprit where it has a name.

Costs nothing beyond the gauges.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.devices.series import has_risen_by
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_count

FEWEST = 500.0
ROUNDING_SHARE = 0.5
"""At least this part of what is allocated for them is rounding: they are below 256 bytes."""
NOISE = 100.0

REMEDY = Remedy(
    title="Keep numbers, not tensors",
    text=(
        "loss.item() (or float(loss)) keeps a number; a tensor on the device takes 512 bytes at "
        "least, and with its graph much more. Where item() waits too often, gather into one tensor "
        "that is made beforehand."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each device on which tiny blocks pile up."""
    return [f for d in case.track.devices if (f := _of_device(case, d)) is not None]


def _of_device(case: Case, device: str) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_BLOCKS}"
    trend = case.gauge_trend(metric, NOISE)
    if not trend.is_growing or trend.net_bytes < FEWEST:
        return None
    allocated = has_risen_by(case, device, gauge.DEVICE_ALLOCATED)
    rounding = has_risen_by(case, device, gauge.DEVICE_ROUNDING)
    if rounding < ROUNDING_SHARE * max(allocated, 1.0):
        return None
    return finding(
        "tiny_blocks",
        f"Tiny tensors pile up on {device}",
        f"{human_count(trend.net_bytes)} more blocks are in use than at the beginning "
        f"({human_count(trend.bytes_per_unit)} per {trend.unit}); of the {human_bytes(allocated)} "
        f"they take, {human_bytes(rounding)} is rounding.",
        REMEDY,
        severity=Severity.NOTE,
        total_bytes=allocated,
        device=device,
    )
