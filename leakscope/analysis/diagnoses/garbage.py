"""Garbage in cycles makes up much of the peak: memory that waits for the collector.

May be confused with: the ordinary sawtooth of young garbage, hence a note unless its amplitude
makes up more than half of the peak above the baseline.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.analysis.series import FloatArray
from leakscope.analysis.severity import MIB, PEAK_SHARE
from leakscope.analysis.trends import judge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes
from leakscope.model.trend import Trend

NOTED_BYTES = 16 * MIB
ALARMING_BYTES = 64 * MIB
"""Below this even a large share of the peak is not worth a warning."""

REMEDY = Remedy(
    title="Break the cycles, or collect at the end of each epoch",
    text=(
        "Objects that refer to each other in a circle are freed only by the collector, "
        "which counts objects, not bytes. Break the circle (weakref, del self.x), or call "
        "gc.collect() where large tensors have just been dropped."
    ),
)


def garbage_series(case: Case) -> tuple[FloatArray, FloatArray]:
    """Return units done and unreached bytes at the full censuses."""
    chosen = [
        (position, census.garbage_bytes)
        for position, census in zip(case.table.at.tolist(), case.table.censuses, strict=True)
        if census.garbage_bytes is not None
    ]
    at = np.array([position for position, _ in chosen], dtype=np.int64)
    sizes = np.array([size for _, size in chosen], dtype=np.float64)
    return case.unit.done[at] if len(at) else sizes, sizes


def garbage_trend(case: Case) -> Trend:
    """Return rate and shape of the garbage that awaits the collector."""
    x, y = garbage_series(case)
    return judge(x, y, unit=case.unit.name, noise_bytes=float(MIB))


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding when much memory awaits the collector."""
    _, sizes = garbage_series(case)
    most = float(sizes.max()) if len(sizes) else 0.0
    if most < NOTED_BYTES:
        return []
    resident = case.track.gauge(case.host_metric)
    known = resident[np.isfinite(resident)]
    rise = float(known.max() - known.min()) if len(known) else 0.0
    often = float(np.mean(sizes > 0.5 * most)) >= 0.5 and len(sizes) >= 3
    dominates = often and most >= ALARMING_BYTES and most > PEAK_SHARE * rise > 0
    return [
        finding(
            "garbage",
            "Memory waits in reference cycles for the collector",
            f"Up to {human_bytes(most)} were reached by no name any more and not yet freed.",
            REMEDY,
            severity=Severity.WARNING if dominates else Severity.NOTE,
            trend=garbage_trend(case),
            share=most / rise if rise > 0 else 0.0,
            total_bytes=most,
            confidence=0.8 if dominates else 0.6,
            falsifier=("gc.collect() would free it.", f"{human_bytes(most)} were unreached."),
        )
    ]
