"""The allocator under pressure: the driver had no room, so the cache was flushed.

Finds: retries during the run, which make steps slow, and out-of-memory errors that were caught.

How: the allocator's own counters.

May be confused with: nothing; one retry when another process comes is no harm. It is no leak, so it
stays a note.

Costs nothing beyond the gauges.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.devices.series import latest
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import plural

REMEDY = Remedy(
    title="Leave the device some room",
    text=(
        "A retry flushes the whole cache and waits for the device. Smaller batches, gradient "
        "accumulation or checkpointing lower the peak; where much of what is reserved is free, "
        "expandable_segments:True does. Look at who else uses the device."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each device whose allocator had to flush its cache."""
    return [f for d in case.track.devices if (f := _of_device(case, d)) is not None]


def _of_device(case: Case, device: str) -> Finding | None:
    retries = int(latest(case, device, gauge.DEVICE_RETRIES))
    errors = int(latest(case, device, gauge.DEVICE_OOMS))
    if not retries and not errors:
        return None
    where = _phases(case, f"{device}.{gauge.DEVICE_RETRIES}")
    text = f"{plural(retries, 'time')} the driver had no room and the cache was flushed{where}."
    if errors:
        text += f" {plural(errors, 'out-of-memory error')} came of it."
    return finding(
        "allocation_retries",
        f"The allocator ran short of memory on {device}",
        text,
        REMEDY,
        severity=Severity.NOTE,
        total_bytes=latest(case, device, gauge.DEVICE_RESERVED),
        device=device,
        growth="constant",
    )


def _phases(case: Case, metric: str) -> str:
    """Return in which phases the counter rose."""
    track = case.track
    values = track.gauge(metric)
    known = np.flatnonzero(np.isfinite(values))
    rose = np.flatnonzero(np.diff(values[known]) > 0) + 1
    codes = set(track.before[known[rose]].tolist())
    names = [name for name in track.phases if track.phase_code(name) in codes]
    return f" in {' and '.join(names)}" if names else ""
