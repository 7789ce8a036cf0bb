"""Garbage in circles makes up much of the peak: memory that waits for the collector.

Full censuses weigh what no name reaches and follow the circle that keeps it; where the weight falls
between two of them, the collector has been there.

May be confused with: the ordinary sawtooth of young garbage, hence a note unless its amplitude
makes up more than half of the peak above the baseline, or memory keeps rising, nothing else grows
and it was most of the rise whenever it was weighed. Costs nothing beside the censuses.
"""

from __future__ import annotations

import msgspec
import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.growth import judge, policy
from leakscope.analysis.ledger import host_ledger
from leakscope.analysis.search import Growth
from leakscope.analysis.series import FloatArray
from leakscope.analysis.severity import MIB
from leakscope.analysis.terms import garbage_series
from leakscope.model.census import CensusRow, RootKind
from leakscope.model.report import Circle, Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, plural
from leakscope.model.trend import Trend

NOTED_BYTES = 16 * MIB
ALARMING_BYTES = 64 * MIB
"""Below this even a large share of the peak is not worth a warning."""
PILED_BYTES = 32 * MIB
PILED_SHARE = 0.5
"""Of what memory had risen by when garbage was last weighed: then it is what rises."""
MOST_CIRCLES = 3
FREED_SHARE = 0.5
"""A fall of the garbage by so much between two censuses is the collector's work."""

_RISING = {"unexplained", "garbage"}

REMEDY = Remedy(
    title="Break the circle, or collect at the end of each epoch",
    text=(
        "Objects that refer to each other in a circle are freed only by the collector, "
        "which counts objects, not bytes. Break the circle (weakref, del self.x), or call "
        "gc.collect() where large tensors have just been dropped."
    ),
)


def garbage_trend(case: Case) -> Trend:
    """Return rate and shape of the garbage that awaits the collector."""
    x, y = garbage_series(case)
    return judge(x, y, unit=case.unit.name, noise=float(MIB))


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
    dominates = often and most >= ALARMING_BYTES and most > policy.PEAK_SHARE * rise > 0
    term = growth.terms.get("garbage")
    piles_up = (term is not None and term.grows) or is_what_rises(case, ledgers, NOTED_BYTES)
    found = finding(
        "garbage",
        "Garbage in reference cycles piles up faster than the collector runs"
        if piles_up
        else "Memory waits in reference cycles for the collector",
        f"Up to {human_bytes(most)} were reached by no name any more and not yet freed."
        f"{_freed(sizes)}{_blamed(circles := _circles(case))}",
        _remedy(circles),
        severity=Severity.WARNING if dominates or piles_up else Severity.NOTE,
        trend=case.gauge_trend(case.host_metric) if piles_up else garbage_trend(case),
        share=most / rise if rise > 0 else 0.0,
        total_bytes=most,
        falsifier=("gc.collect() would free it.", f"{human_bytes(most)} were unreached."),
    )
    return [msgspec.structs.replace(found, circles=circles)]


def is_what_rises(case: Case, ledgers: list[Ledger], least: int) -> bool:
    """Return whether memory rises without a name, and garbage was what it had risen by.

    ``least`` is what it must have risen by for a look to count, in bytes.
    """
    host = host_ledger(ledgers)
    left = sum(e.bytes for e in host.entries if e.kind in _RISING) if host else 0
    trend = case.gauge_trend(case.host_metric)
    if host is None or left < max(PILED_BYTES, PILED_SHARE * host.total_bytes):
        return False
    weighed = []
    for position, census in zip(case.table.at.tolist(), case.table.censuses, strict=True):
        risen = (case.nearest(case.host_metric, position) or 0.0) - _lowest(case)
        if census.garbage_bytes is not None and risen >= least:
            weighed.append(census.garbage_bytes >= PILED_SHARE * risen)
    return trend.is_growing and bool(weighed) and all(weighed)


def _lowest(case: Case) -> float:
    """Return resident memory at the beginning of training."""
    readings = case.track.gauge(case.host_metric)
    inside = readings[np.isfinite(readings) & (case.track.phase > 0)]
    return float(inside[0]) if len(inside) else 0.0


def _freed(sizes: FloatArray) -> str:
    """Return how often the collector was seen to have freed it, and how much at once."""
    falls = -np.diff(sizes)
    freed = falls[falls >= FREED_SHARE * sizes[:-1]]
    freed = freed[freed >= float(MIB)]
    if not len(freed):
        return f" In {plural(len(sizes), 'look')} it was not seen to be freed." * (len(sizes) > 1)
    return (
        f" Between {plural(len(sizes), 'look')} the collector freed it {plural(len(freed), 'time')}"
        f", {human_bytes(float(np.median(freed)))} each."
    )


def _circles(case: Case) -> list[Circle]:
    """Return the circles that kept the most garbage, each by its steps."""
    heaviest: dict[tuple[str, ...], CensusRow] = {}
    for census in case.table.censuses:
        for row in census.rows:
            known = heaviest.get(tuple(row.cycle))
            if row.root is RootKind.GARBAGE and row.cycle and _weight(row) > _weight(known):
                heaviest[tuple(row.cycle)] = row
    rows = sorted(heaviest.values(), key=lambda row: (-_weight(row), row.cycle))
    return [
        Circle(steps=row.cycle, type=row.type, bytes=_weight(row), count=row.count)
        for row in rows[:MOST_CIRCLES]
    ]


def _weight(row: CensusRow | None) -> int:
    return row.host_bytes + sum(row.device_bytes.values()) if row is not None else 0


def _blamed(circles: list[Circle]) -> str:
    if not circles:
        return ""
    first = circles[0]
    steps = " → ".join(f"`{step}`" for step in [*first.steps, first.steps[0]])
    many = f"{first.count:,} circles" if first.count > 1 else "The circle"
    return f" {many} {steps} kept {human_bytes(first.bytes)}."


def _remedy(circles: list[Circle]) -> Remedy:
    """Return where to break the heaviest circle, if it is known."""
    if not circles:
        return REMEDY
    last = circles[0].steps[-1]
    return Remedy(
        title=f"Break the circle at {last}, or collect at the end of each epoch",
        text=f"Make `{last}` a weak reference (weakref.ref, weakref.proxy) or clear it when the "
        f"object is done with. {REMEDY.text}",
    )
