"""The cyclic collector was switched off or frozen, and garbage piles up.

May be confused with: a program that switches it off and has no cycles. That is only a note. A short
run weighs garbage only once: it piles up where it was most of what memory had risen by, and memory
rises on without a name. Costs two gauges and the garbage figure of full censuses.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.diagnoses.garbage import garbage_trend, is_what_rises
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import MIB
from leakscope.analysis.source import SourceIndex
from leakscope.analysis.source.calls import places_that_call
from leakscope.analysis.terms import garbage_series
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_count

MATTERS_BYTES = 16 * MIB
"""Garbage below this does no harm, whoever switched the collector off."""
WEIGHED_BYTES = 8 * MIB
"""What memory must have risen by for a single look to tell what rises."""

REMEDY_TEXT = (
    "Cycles are freed only by the collector: call gc.collect() at the end of each epoch, or switch "
    "it on again."
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return findings about a collector that doesn't do its work."""
    enabled, frozen = case.track.gauge(gauge.GC_ENABLED), case.track.gauge(gauge.GC_FROZEN)
    known = enabled[np.isfinite(enabled)]
    off = len(known) >= 2 and float(np.mean(known[1:] == 0)) > 0.5
    hidden = frozen[np.isfinite(frozen)]
    jumped = len(hidden) >= 2 and hidden.max() - hidden[0] > 0
    if not off and not jumped:
        return []
    _, garbage = garbage_series(case)
    most = float(garbage.max()) if len(garbage) else 0.0
    trend = garbage_trend(case)
    # The last look may be the highest by chance where the program collects by itself now and then.
    rises = most > 0 and most == garbage[-1] and case.gauge_trend(case.host_metric).is_growing
    piles_up = most >= MATTERS_BYTES and (trend.is_growing or rises)
    if off and not trend.is_growing and is_what_rises(case, ledgers, WEIGHED_BYTES):
        piles_up, trend = True, case.gauge_trend(case.host_metric)
    if off:
        title, call = "The cyclic garbage collector is switched off", "gc.enable()"
        state = "Automatic collection was off for most of the run"
    else:
        title, call = "Objects were frozen out of the collector's sight", "gc.unfreeze()"
        state = f"gc.freeze() hides {human_count(float(hidden.max()))} objects from the collector"
        piles_up = piles_up and trend.is_growing
    return [
        finding(
            "collector_off" if off else "collector_frozen",
            title,
            f"{state}; at most {human_bytes(most)} of garbage were waiting.",
            Remedy(title=f"Call {call}, or collect now and then", text=REMEDY_TEXT),
            severity=Severity.WARNING if piles_up else Severity.NOTE,
            trend=trend,
            total_bytes=most,
            fed_at=_lines(case, "disable" if off else "freeze"),
            falsifier=(
                "gc.collect() frees what awaits it.",
                f"{human_bytes(most)} were unreached.",
            ),
        )
    ]


def _lines(case: Case, function: str) -> list[str]:
    """Return the places that did it."""
    sources = SourceIndex(case.recording.sources, case.run.manifest.project_root)
    return places_that_call(sources, {"gc"}, {function})
