"""Growth of resident memory that nothing explains, when it is steady and large.

May be confused with: warm-up of libraries (imports, oneDNN's primitive cache, arenas), which slows
down. Hence it must go on through all thirds of the run, and be most of what grows. With what is
kept for each shape of tensors: hence it must go on between new shapes. And with pages of a large
array that are written for the first time: the C heap then hands out nothing more.
"""

from __future__ import annotations

import msgspec
import numpy as np

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.ledger import host_ledger
from leakscope.analysis.library_caches import Gathering, most_gathering
from leakscope.analysis.search import Growth
from leakscope.analysis.series import FloatArray
from leakscope.analysis.severity import MIB
from leakscope.analysis.shapes import Company, company_of, new_shapes
from leakscope.analysis.touching import may_be_touched_only
from leakscope.analysis.trends import goes_on, goes_on_evenly, is_growth
from leakscope.model import gauge
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_share, plural
from leakscope.model.trend import Trend

GROWTH_BYTES = 32 * MIB
SHARE = 0.3
EVEN_GROWTH_BYTES = 8 * MIB
EVEN_SHARE = 0.5
"""So much is enough where growth is as good as linear, which no warm-up is."""
LONG_POINTS = 8

FALSIFIER = (
    "With ONEDNN_PRIMITIVE_CACHE_CAPACITY=1 and batches of one shape it would grow as before."
)
UNTOLD = "Memory grows with new shapes of tensors, or leaks"

MOSTLY = 0.5
"""A cached function that gathers explains growth if it makes up this part of it."""

_IN_USE = frozenset({"named", "graph", "garbage", "pinned", "own"})

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

CACHED = Remedy(
    title="Keep objects out of the cached function",
    text=(
        "functools.lru_cache on a method keeps self of every object that it was called on, and all "
        "that belongs to it. Make the object once and reuse it, or call the function's "
        "cache_clear() when an object is done with."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding when much steady growth has no name."""
    ledger = host_ledger(ledgers)
    left = 0.0 if ledger is None else _without_a_name(case, ledger)
    if ledger is None or not left:
        return []
    cache, trend = most_gathering(case), case.gauge_trend(case.host_metric)
    share = left / max(ledger.total_bytes, 1)
    if cache is None or cache.gained < MOSTLY * left:
        company = company_of(case, left, in_use(ledger))
        if company is Company.WORK:
            return [_finding(share, left, trend)]
        return [_of_shapes(case, company, share, left, trend)]
    is_told = any(case.table.paths[grower.path] == cache.row.path for grower in growth.growers)
    return [] if is_told else [_of_a_cache(cache, share, left, trend)]


def _without_a_name(case: Case, ledger: Ledger) -> float:
    """Return the growth that has no name; 0 where it is little or may be something harmless."""
    left = sum(e.bytes for e in ledger.entries if e.kind == "unexplained") - unread_slack(case)
    unnamed = unnamed_in_use(case, ledger)
    if unnamed > max(left, 0.0):
        return unnamed
    x, y = case.gauge_series(case.host_metric)
    trend, is_even = case.gauge_trend(case.host_metric), goes_on_evenly(x, y)
    if not (is_steady(trend, y) or (is_even and _is_long(trend))):
        return unnamed
    least, part = (EVEN_GROWTH_BYTES, EVEN_SHARE) if is_even else (GROWTH_BYTES, SHARE)
    if left < least or left < part * ledger.total_bytes or may_be_touched_only(case, left):
        return unnamed
    return float(left)


def _finding(share: float, left: float, trend: Trend) -> Finding:
    return finding(
        "unexplained",
        "Memory grows outside everything that has a name",
        f"{human_bytes(left)} of growth ({human_share(share)}) is neither garbage nor "
        "allocator slack nor in anything that has a name: native code allocated it, or a running "
        "loop alone refers to it, as to the generator that it goes over.",
        REMEDY,
        severity=Severity.WARNING,
        trend=trend,
        share=share,
        total_bytes=left,
        confidence=0.5,
        falsifier=("A warm-up would have ended within the run.", "It went on in each third."),
    )


def _of_shapes(case: Case, company: Company, share: float, left: float, trend: Trend) -> Finding:
    amount = f"{human_bytes(left)} of growth ({human_share(share)})"
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
        trend=trend,
        share=share,
        total_bytes=left,
        confidence=0.7 if is_told else 0.5,
        falsifier=(FALSIFIER, None),
    )


def _of_a_cache(cache: Gathering, share: float, left: float, trend: Trend) -> Finding:
    name, row = cache.row.name, cache.row
    bound = f" It keeps {row.capacity:,} at most." if row.capacity else ""
    told = finding(
        "unexplained",
        f"A library's cached function keeps more and more: {name}",
        f"{name} kept the results of {cache.first:,} calls when it was first looked at and of "
        f"{cache.last:,} at last; at that rate it gained {human_bytes(cache.gained)} of the "
        f"{human_bytes(left)} that nothing else explains.{bound}",
        CACHED,
        severity=Severity.NOTE if cache.is_harmless else Severity.WARNING,
        trend=trend,
        share=share,
        total_bytes=left,
        confidence=0.6,
        falsifier=(f"With {name} cleared after each round memory would grow as before.", None),
        subject=row.path,
    )
    return msgspec.structs.replace(told, defined_at=cache.place or None)


def in_use(ledger: Ledger) -> int:
    """Return by how much all that has a name, or is known otherwise, grew in use."""
    return sum(max(entry.bytes, 0) for entry in ledger.entries if entry.kind in _IN_USE)


def unnamed_in_use(case: Case, ledger: Ledger) -> float:
    """Return by how much more than all names the C heap had in use when last read, if evenly so.

    What is free at the end of a program says little: much may have been let go just before.
    """
    if case.window is None:
        return 0.0
    used, done = case.track.gauge(gauge.MALLOC_IN_USE), case.unit.done
    known = np.flatnonzero(np.isfinite(used))
    known = known[(known >= case.window.first) & (known <= case.window.last)]
    if len(known) < 2 or not goes_on_evenly(done[known], used[known]):
        return 0.0
    gained = float(used[known[-1]] - used[known[0]])
    gained -= in_use(ledger)
    is_much = gained >= max(GROWTH_BYTES, SHARE * ledger.total_bytes)
    return gained if is_much else 0.0


def unread_slack(case: Case) -> int:
    """Return what malloc may have held free besides: it was read before the window's end and after.

    On a busy machine the C heap is read seldom; what is free at the next reading may have been so.
    """
    if case.window is None:
        return 0
    free = case.track.gauge(gauge.MALLOC_FREE)
    known = np.flatnonzero(np.isfinite(free))
    before, after = known[known <= case.window.last], known[known > case.window.last]
    if not len(before) or not len(after) or before[-1] == case.window.last:
        return 0
    return max(int(free[after[0]] - free[before[-1]]), 0)


def is_steady(trend: Trend, y: FloatArray) -> bool:
    """Return whether a gauge grew at enough boundaries, and in each third of them."""
    return _is_long(trend) and goes_on(y)


def _is_long(trend: Trend) -> bool:
    return is_growth(trend.verdict) and trend.points >= LONG_POINTS
