"""Growth that only native code holds: autograd, queues in C++, registries of the interpreter.

May be confused with: buffers that libraries allocate once. Needs four full censuses.
"""

from __future__ import annotations

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.analysis.series import HOST
from leakscope.analysis.severity import HORIZON, RATE_PER_PASS, STEADY_BYTES
from leakscope.analysis.trends import is_growth, judge
from leakscope.model.census import RootKind
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes

MOST = 5

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
    trend = judge(x, y, unit=case.unit.name, noise_bytes=RATE_PER_PASS)
    if not is_growth(trend.verdict):
        return None
    serious = HORIZON * trend.net_bytes >= STEADY_BYTES and trend.points >= 4
    gain = case.device_gain(device) or 0.0
    sites = [f"{s.file}:{s.line}" for s in row.allocated_at[:3]]
    where = f" They were allocated at {', '.join(sites)}." if sites else ""
    return finding(
        "native_held",
        f"{row.type} objects that only native code holds",
        f"{row.name}: {human_bytes(y[-1])} in {row.count} objects, growing by "
        f"{human_bytes(trend.bytes_per_unit)} per {trend.unit}; no Python name reaches them."
        f"{where}",
        REMEDY,
        severity=Severity.WARNING if serious else Severity.NOTE,
        trend=trend,
        share=trend.net_bytes / gain if device == HOST and gain > trend.net_bytes else 0.0,
        total_bytes=float(y[-1]),
        device=device,
        confidence=0.6,
        falsifier=("gc.collect() would free them if they were garbage.", "They are referenced."),
        subject=row.path,
    )
