"""Growth that only native code holds: autograd, queues in C++, registries of the interpreter.

Judged by four full censuses, or by two where resident memory tells of the same growth all along; by
one where what it saw can't have been there when training began.
May be confused with: buffers that libraries allocate once.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.diagnoses.gradient_cycles import gradient_cycle, is_gradient_cycle
from leakscope.analysis.diagnoses.unexplained import is_steady
from leakscope.analysis.search import Growth
from leakscope.analysis.series import HOST, FloatArray
from leakscope.analysis.severity import HORIZON, RATE_PER_PASS, STEADY_BYTES
from leakscope.analysis.trends import FEWEST_POINTS, is_growth, judge, theil_sen
from leakscope.model.census import RootKind
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes
from leakscope.model.trend import Trend

MOST = 5
FOLLOWS = 0.5
"""Seen at few censuses, they must make up this part of the growth of resident memory."""

REMEDY = Remedy(
    title="Look for what keeps them in native code",
    text=(
        "An autograd graph, a queue of a C++ extension, atexit or a hook registered again "
        "and again may hold them: detach what is kept, and remove what is registered."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each kind of object that grows with no Python name on it."""
    found = [
        finding
        for path, row in enumerate(case.table.latest)
        if row.root is RootKind.NATIVE and not row.parent
        for device in case.table.retained
        if (finding := _grows(case, path, device)) is not None
    ]
    return sorted(found, key=lambda f: -f.total_bytes)[:MOST]


def _grows(case: Case, path: int, device: str) -> Finding | None:
    table, row = case.table, case.table.latest[path]
    columns = np.flatnonzero(table.full)
    present = np.flatnonzero(np.isfinite(table.retained[device][path, columns]))
    if len(present) == 0:
        return None
    columns = columns[present[0] :]
    y = np.nan_to_num(table.retained[device][path, columns])
    x = case.unit.done[table.at[columns]]
    is_circle = is_gradient_cycle(row)
    if is_circle:  # there was none before the first step
        x, y = np.insert(x, 0, case.unit.done[0]), np.insert(y, 0, 0.0)
    trend = _trend(case, x, y, device)
    if trend is None:
        return None
    cycle = gradient_cycle(case, row) if is_circle else None
    serious = HORIZON * trend.net_bytes >= STEADY_BYTES
    gain = case.device_gain(device) or 0.0
    sites = [f"{s.file}:{s.line}" for s in row.allocated_at[:3]]
    where = f" They were allocated at {', '.join(sites)}." if sites else ""
    return finding(
        cycle.kind if cycle else "native_held",
        cycle.title if cycle else f"{row.type} objects that only native code holds",
        f"{row.name}: {human_bytes(y[-1])} in {row.count} objects, growing by "
        f"{human_bytes(trend.bytes_per_unit)} per {trend.unit}; no Python name reaches them."
        f"{where}{' ' + cycle.text if cycle else ''}",
        cycle.remedy if cycle else REMEDY,
        severity=Severity.WARNING if serious else Severity.NOTE,
        trend=trend,
        share=trend.net_bytes / gain if device == HOST and gain > trend.net_bytes else 0.0,
        total_bytes=float(y[-1]),
        device=device,
        fed_at=cycle.fed_at if cycle else [],
        confidence=0.6 if len(columns) > 1 else 0.4,
        falsifier=("gc.collect() would free them if they were garbage.", "They are referenced."),
        subject=row.path,
    )


def _trend(case: Case, x: FloatArray, y: FloatArray, device: str) -> Trend | None:
    """Return how the objects grow, None where they don't or too little is known."""
    trend = judge(x, y, unit=case.unit.name, noise_bytes=RATE_PER_PASS)
    if is_growth(trend.verdict):
        return trend
    if len(y) >= FEWEST_POINTS or len(y) < 2 or device != HOST or x[-1] <= x[0]:
        return None
    slope, memory = theil_sen(x, y), case.gauge_trend(case.host_metric)
    _, resident = case.gauge_series(case.host_metric)
    if slope.rate < FOLLOWS * memory.bytes_per_unit or not is_steady(memory, resident):
        return None
    return Trend(
        verdict=memory.verdict,
        bytes_per_unit=slope.rate,
        interval=(slope.low, slope.high),
        unit=case.unit.name,
        points=memory.points,
        net_bytes=float(y[-1] - y[0]),
        reason=f"known at {len(y)} moments; resident memory was {memory.reason}",
    )
