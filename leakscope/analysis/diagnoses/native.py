"""Growth that only native code holds: autograd, queues in C++, registries of the interpreter.

May be confused with: buffers that libraries allocate once.
"""

from __future__ import annotations

import msgspec
import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.diagnoses.gradient_cycles import gradient_cycle, is_gradient_cycle
from leakscope.analysis.growth import judge, policy
from leakscope.analysis.search import Growth
from leakscope.analysis.series import HOST, FloatArray, IntArray
from leakscope.analysis.source.calls import places_that_call
from leakscope.analysis.terms import elsewhere_at
from leakscope.model.census import CensusRow, RootKind
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes
from leakscope.model.trend import Trend

MOST = 5
REGISTERED = {"tuple", "dict", "function", "method", "functools.partial"}
"""What atexit keeps of a call: its function and its arguments."""

REMEDY = Remedy(
    title="Look for what keeps them in native code",
    text=(
        "An autograd graph, a queue of a C++ extension, atexit or a hook registered again "
        "and again may hold them: detach what is kept, and remove what is registered."
    ),
)

REGISTER_ONCE = Remedy(
    title="Register one function before the loop, or give it nothing large",
    text=(
        "atexit keeps each function that it is given, and its arguments, until it has called it. "
        "Register one that goes over what is to be done at the end, and hand it names or paths "
        "instead of the objects; atexit.unregister(function) takes back all calls of a function."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each kind of object that grows with no Python name on it."""
    found = [
        finding
        for path, row in enumerate(case.table.latest)
        if row.root is RootKind.NATIVE and not row.parent
        for device in case.table.retained
        if (finding := _grows(case, growth, path, device)) is not None
    ]
    return sorted(found, key=lambda f: -f.total_bytes)[:MOST]


def _grows(case: Case, growth: Growth, path: int, device: str) -> Finding | None:
    table, row = case.table, case.table.latest[path]
    columns = np.flatnonzero(table.full)
    present = np.flatnonzero(np.isfinite(table.retained[device][path, columns]))
    if len(present) == 0:
        return None
    columns = columns[max(present[0] - 1, 0) :]  # where the walk before saw none there was none
    y = np.nan_to_num(table.retained[device][path, columns])
    x = case.work_done[table.at[columns]]
    is_circle = is_gradient_cycle(row)
    if is_circle:  # there was none before the first step
        x, y = np.insert(x, 0, case.work_done[0]), np.insert(y, 0, 0.0)
    trend = judge(x, y, unit=case.unit.name, noise=policy.RATE_PER_PASS)
    if not trend.is_growing and device == HOST:
        trend = _carries(case, growth, columns, y[-len(columns) :]) or trend
    if not trend.is_growing:
        return None
    cycle = gradient_cycle(case, row) if is_circle else None
    registered = [] if cycle else _given_to_atexit(case, row)
    serious = policy.HORIZON * trend.net_bytes >= policy.STEADY_BYTES
    gain = case.device_gain(device) or 0.0
    title, text, remedy = _words(row, trend, float(y[-1]), registered)
    return finding(
        cycle.kind if cycle else "native_held",
        cycle.title if cycle else title,
        f"{text}{' ' + cycle.text if cycle else ''}",
        cycle.remedy if cycle else remedy,
        severity=Severity.WARNING if serious else Severity.NOTE,
        trend=trend,
        share=trend.net_bytes / gain if device == HOST and gain > trend.net_bytes else 0.0,
        total_bytes=float(y[-1]),
        device=device,
        fed_at=cycle.fed_at if cycle else registered,
        falsifier=("gc.collect() would free them if they were garbage.", "They are referenced."),
        subject=row.path,
    )


def _words(
    row: CensusRow, trend: Trend, held: float, registered: list[str]
) -> tuple[str, str, Remedy]:
    """Return title, text and remedy; of what is known to be given to atexit, that comes first."""
    measured = (
        f"{human_bytes(held)} in {row.count} objects, growing by "
        f"{human_bytes(trend.bytes_per_unit)} per {trend.unit}"
    )
    sites = [f"{s.file}:{s.line}" for s in row.allocated_at[:3]]
    where = f" They were allocated at {', '.join(sites)}." if sites else ""
    if registered:
        text = (
            f"What atexit.register is given at {registered[0]} stays until the program ends: "
            f"{measured}; no Python name reaches them ({row.name}).{where}"
        )
        return "Calls pile up that are to be made when the program ends", text, REGISTER_ONCE
    text = f"{row.name}: {measured}; no Python name reaches them.{where}"
    return f"{row.type} objects that only native code holds", text, REMEDY


def _given_to_atexit(case: Case, row: CensusRow) -> list[str]:
    """Return where something is registered again and again that the interpreter then keeps."""
    if not {row.type, row.path.rpartition("·")[2]} & REGISTERED:
        return []
    return places_that_call(case.sources, {"atexit"}, {"register"}, repeatedly=True)


def _carries(case: Case, growth: Growth, columns: IntArray, held: FloatArray) -> Trend | None:
    """Return the trend of all that is new without a name, where these objects are most of it.

    Walks of the whole heap are few, and what they show is weighed at every census. Each selects the
    heaviest objects alone, so that of very many a part is seen: the largest part counts.
    """
    term = growth.terms.get("elsewhere")
    new = elsewhere_at(case, columns)
    if term is None or not term.grows or not (new > 0).any():
        return None
    counts = (new > 0) & ((held >= policy.UNNAMED_BYTES) | (columns == columns[-1]))
    share = min(float((held[counts] / new[counts]).max(initial=0.0)), 1.0)
    if share < policy.CARRIED_SHARE:
        return None
    low, high = term.trend.interval
    return msgspec.structs.replace(
        term.trend,
        bytes_per_unit=term.trend.bytes_per_unit * share,
        interval=(low * share, high * share),
        net_bytes=term.trend.net_bytes * share,
    )
