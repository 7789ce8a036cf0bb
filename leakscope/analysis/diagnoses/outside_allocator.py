"""Device memory beyond torch's allocator that grows: NCCL, libraries, other processes.

Finds: what the device has in use less what torch reserves, when it rises steadily.

How: the driver's count of used memory, which spans all processes of the device; its growth says
more than its level.

May be confused with: another process on the same device, which can't be told apart here; steps when
a process group is made, at the first collective or the first kernel of a library, after which it
stays. Hence it is a note, and growth must go on through all thirds of the run.

Costs one question to the driver, asked with censuses only.
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

GROWTH_BYTES = 64 * MIB
LONG_POINTS = 6

REMEDY = Remedy(
    title="See who uses the device",
    text=(
        "nvidia-smi lists the processes of the device. If it is this one: reuse process groups "
        "instead of making new ones, unload engines (TensorRT, cuDNN plans) that are no longer "
        "used, and look for cudaMalloc in extensions. NCCL takes buffers per communicator: "
        "NCCL_BUFFSIZE makes them smaller."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each device on which memory outside the allocator grows."""
    return [f for d in case.track.devices if (f := _of_device(case, d)) is not None]


def _of_device(case: Case, device: str) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_OUTSIDE}"
    trend = case.gauge_trend(metric)
    _, y = case.gauge_series(metric)
    if not is_growth(trend.verdict) or trend.points < LONG_POINTS:
        return None
    if trend.net_bytes < GROWTH_BYTES or not goes_on(y):
        return None
    return finding(
        "outside_allocator",
        f"Memory outside torch's allocator grows on {device}",
        f"What the device has in use beyond torch's reserved memory grew by "
        f"{human_bytes(trend.net_bytes)} to {human_bytes(float(y[-1]))}: libraries of this "
        "process, or another process on the device.",
        REMEDY,
        severity=Severity.NOTE,
        trend=trend,
        total_bytes=float(y[-1]),
        device=device,
        confidence=0.5,
        falsifier=("With no other process on the device it would be this one's.", None),
    )
