"""A leak without a name: private memory goes on growing, and nothing bounded explains it.

May be confused with: warm-up of libraries, which ends; what is kept for each shape of tensors,
which comes with new shapes alone; pages of a large array that are written for the first time. What
is known of it is told: which term of the ledger it is in, and which line ran meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.growth import policy
from leakscope.analysis.ledger import host_ledger, named_bytes
from leakscope.analysis.search import Growth
from leakscope.analysis.series import HOST, FloatArray
from leakscope.analysis.shapes import Company, company_of, new_shapes
from leakscope.analysis.touching import may_be_touched_only
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, LedgerEntry, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_share, plural
from leakscope.model.trend import Trend

FALSIFIER = (
    "With ONEDNN_PRIMITIVE_CACHE_CAPACITY=1 and batches of one shape it would grow as before."
)
UNTOLD = "Memory grows with new shapes of tensors, or leaks"

_IN_USE = frozenset({"named", "graph", "garbage", "pinned", "own"})
"""Terms of the ledger that tell what memory is used for."""

REMEDY = Remedy(
    title="Narrow it down",
    text=(
        "A generator that is made in the head of a for loop has no name: give it one before the "
        "loop. Else run with fewer libraries active (no DataLoader workers, no logging, no image "
        "decoding) and compare; a native profiler such as memray with --native shows the "
        "allocating C functions."
    ),
)

FEWER_SHAPES = Remedy(
    title="Meet fewer shapes",
    text=(
        "Pad batches to a few lengths (buckets). ONEDNN_PRIMITIVE_CACHE_CAPACITY=64 in the "
        "environment bounds the cache of oneDNN, which has room for 1,024 kernels by default."
    ),
)


@dataclass(frozen=True)
class Unnamed:
    """Growth of private memory that has no name."""

    bytes: float
    """What it gained over the stretch that is accounted for."""
    share: float
    """Part of the growth of memory."""
    trend: Trend
    """Of what is left of private memory when all that is measured is taken off."""


def unnamed_growth(case: Case, ledgers: list[Ledger]) -> Unnamed | None:
    """Return the growth of private memory without a name; None where it is little."""
    ledger = host_ledger(ledgers)
    if ledger is None or case.pool.is_bounded:
        return None
    left = float(sum(e.bytes for e in ledger.entries if e.kind == "unexplained"))
    share = left / max(ledger.total_bytes, 1)
    if left < policy.UNNAMED_BYTES or share < policy.UNNAMED_SHARE:
        return None
    return Unnamed(left, share, case.trend_of(*unexplained_series(case)))


def unexplained_series(case: Case) -> tuple[FloatArray, FloatArray]:
    """Return units done and private memory without all that is measured, at each census.

    Where no census was taken it is private memory itself.
    """
    table, private = case.table, case.private
    at = table.at[np.isin(table.at, case.working) & np.isfinite(private[table.at])]
    if len(at) < policy.FEWEST_READINGS or HOST not in table.retained:
        return case.pool_series()
    left = private[at] - np.interp(at, table.at, named_bytes(table, HOST))
    for name in (gauge.MALLOC_FREE, gauge.PINNED_HOST, gauge.OWN):
        known = case.track.known(name)
        if len(known):
            left = left - np.interp(at, known, case.track.gauge(name)[known])
    weighed = [n for n, c in enumerate(table.censuses) if c.garbage_bytes is not None]
    if weighed:
        garbage = [float(table.censuses[n].garbage_bytes or 0) for n in weighed]
        left = left - np.interp(at, table.at[weighed], garbage)
    return case.work_done[at], left


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding when memory goes on growing without a name."""
    ledger, unnamed = host_ledger(ledgers), unnamed_growth(case, ledgers)
    if ledger is None or unnamed is None or not case.pool.is_growing:
        return []
    if unnamed.trend.is_bounded or may_be_touched_only(case, unnamed.bytes):
        return []
    company = company_of(case, unnamed.bytes, in_use(ledger))
    if company is not Company.WORK:
        return [_of_shapes(case, company, unnamed)]
    return [_leak(case, unnamed, ledger)] if unnamed.trend.is_growing else []


def _leak(case: Case, unnamed: Unnamed, ledger: Ledger) -> Finding:
    return finding(
        "unexplained",
        "Memory grows outside everything that has a name",
        f"{human_bytes(unnamed.bytes)} of growth ({human_share(unnamed.share)}) is neither garbage "
        "nor allocator slack nor in anything that has a name: native code allocated it, or a "
        f"running loop alone refers to it, as to the generator that it goes over.{_beside(ledger)}",
        REMEDY,
        severity=Severity.WARNING,
        trend=unnamed.trend,
        share=unnamed.share,
        total_bytes=unnamed.bytes,
        falsifier=(
            "A warm-up would have ended within the run.",
            f"It went on over the last {human_bytes(case.pool.net_bytes)} of growth.",
        ),
    )


def _beside(ledger: Ledger) -> str:
    """Return what else grew, the greatest first."""
    others = sorted(ledger.entries, key=lambda e: -e.bytes)
    known = [e for e in others if e.kind != "unexplained" and e.bytes >= policy.GAUGE_NOISE_BYTES]
    told = ", ".join(f"{_short(e)} {human_bytes(e.bytes)}" for e in known[:3])
    return f" Beside it grew: {told}." if told else ""


def _short(entry: LedgerEntry) -> str:
    return entry.label.partition(":")[0]


def _of_shapes(case: Case, company: Company, unnamed: Unnamed) -> Finding:
    amount = f"{human_bytes(unnamed.bytes)} of growth ({human_share(unnamed.share)})"
    met = f"tensors of {plural(new_shapes(case), 'new shape')}"
    kept = (
        "Libraries keep something for each shape, as oneDNN does a kernel in a cache that ends to "
        "grow when it is full, and larger batches need more at once."
    )
    is_told = company is Company.SHAPES
    return finding(
        "unexplained",
        "Memory grows with new shapes of tensors" if is_told else UNTOLD,
        f"{amount} came with {met}, and hardly any while shapes stayed as they were. {kept}"
        if is_told
        else f"{amount} has no name, and nearly every look met {met}. {kept} It may be a leak too.",
        FEWER_SHAPES,
        severity=Severity.NOTE,
        trend=unnamed.trend,
        share=unnamed.share,
        total_bytes=unnamed.bytes,
        falsifier=(FALSIFIER, None),
    )


def in_use(ledger: Ledger) -> int:
    """Return by how much all that has a name, or is known otherwise, grew in use."""
    return sum(max(entry.bytes, 0) for entry in ledger.entries if entry.kind in _IN_USE)
