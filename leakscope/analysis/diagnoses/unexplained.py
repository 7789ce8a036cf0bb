"""A leak without a name: private memory goes on growing, and nothing bounded explains it.

May be confused with: warm-up of libraries, which ends; what is kept for each shape of tensors,
which comes with new shapes alone; pages of a large array that are written for the first time. What
is known of it is told: which term of the ledger it is in, and which line ran meanwhile.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.growth import policy
from leakscope.analysis.ledger import host_ledger
from leakscope.analysis.native_growth import NativeGrowth, growing_allocations
from leakscope.analysis.search import Growth
from leakscope.analysis.series import HOST
from leakscope.analysis.shapes import Company, company_of, new_shapes
from leakscope.analysis.terms import Term
from leakscope.model.report import Finding, Ledger, LedgerEntry, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_share, plural

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

LOOK_ELSEWHERE = Remedy(
    title="Look for what was registered or handed to a library",
    text=(
        "What is registered, cached or put into a queue of a library's stays until it is taken "
        "back: atexit, hooks, callbacks, loggers, figures, compiled functions. Register once "
        "before the loop, or take back what each round adds."
    ),
)
MOST_TYPES = 3
MOST_SITES = 3

CALL_LESS = Remedy(
    title="Close, stop or reset what this line uses in each round",
    text=(
        "A library's function called there allocates memory that it doesn't free: a profiler, "
        "reader, session or cache that is never stopped, closed or bounded, or a fault of the "
        "library's own. End it in each round, or make it once before the loop; then compare."
    ),
)

FEWER_SHAPES = Remedy(
    title="Meet fewer shapes",
    text=(
        "Pad batches to a few lengths (buckets). ONEDNN_PRIMITIVE_CACHE_CAPACITY=64 in the "
        "environment bounds the cache of oneDNN, which has room for 1,024 kernels by default."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return findings when memory goes on growing without a name of the user's."""
    ledger, found = host_ledger(ledgers), []
    elsewhere, term = growth.terms.get("elsewhere"), growth.terms.get("unexplained")
    if elsewhere is not None and elsewhere.grows and not is_named(case, growth, elsewhere):
        found.append(_elsewhere(case, elsewhere))
    if ledger is None or term is None or not term.trend.is_growing or not term.is_much:
        return found
    if term.excused_by == "new_shapes":
        return [*found, _of_shapes(case, Company.SHAPES, term)]
    if term.excused_by:
        return found
    if company_of(case, term.trend.net_bytes, in_use(ledger)) is Company.EITHER:
        return [*found, _of_shapes(case, Company.EITHER, term)]
    return [*found, _leak(case, term, ledger)]


def is_named(case: Case, growth: Growth, term: Term) -> bool:
    """Return whether what grows in libraries is told by its name."""
    named = [
        g.trend.bytes_per_unit * g.units
        for g in growth.growers
        if g.growth == "across" and g.device == HOST and not case.table.latest[g.path].user
    ]
    return sum(named) >= policy.CARRIED_SHARE * term.trend.net_bytes


def _elsewhere(case: Case, term: Term) -> Finding:
    types = _types(case)
    return finding(
        "unexplained",
        "Memory grows outside the names of the program",
        f"{human_bytes(term.trend.net_bytes)} of new objects are held by libraries or native code "
        f"and by no name of the program's{', most of them ' + types if types else ''}: registries, "
        "caches, queues, callbacks or graphs that something was handed to.",
        LOOK_ELSEWHERE,
        severity=Severity.WARNING,
        trend=term.trend,
        share=term.share,
        total_bytes=term.trend.net_bytes,
        falsifier=(
            "A cache that fills would have ended within the run.",
            f"It grew through the last {plural(term.trend.points, 'reading')}.",
        ),
        subject="elsewhere",
    )


def _types(case: Case) -> str:
    """Return the heaviest types of what is new outside the user's names, with their bytes."""
    last = next((c.elsewhere_types for c in reversed(case.table.censuses) if c.elsewhere_types), {})
    heaviest = sorted(last.items(), key=lambda item: -item[1])[:MOST_TYPES]
    worth = [(name, size) for name, size in heaviest if size >= policy.GAUGE_NOISE_BYTES]
    return ", ".join(f"{name} ({human_bytes(size)})" for name, size in worth)


def _leak(case: Case, term: Term, ledger: Ledger) -> Finding:
    left = term.trend.net_bytes
    native = [n for n in growing_allocations(case) if n.gained_bytes >= policy.UNNAMED_BYTES]
    if sum(n.gained_bytes for n in native) >= policy.CARRIED_SHARE * left:
        return _native(term, native, ledger)
    return finding(
        "unexplained",
        "Memory grows outside everything that has a name",
        f"{human_bytes(left)} of growth ({human_share(min(term.share, 1.0))}) is neither garbage "
        "nor allocator slack nor in anything that has a name: native code allocated it, or a "
        f"running loop alone refers to it, as to the generator that it goes over.{_beside(ledger)}",
        REMEDY,
        severity=Severity.WARNING,
        trend=term.trend,
        share=term.share,
        total_bytes=left,
        falsifier=(
            "A warm-up would have ended within the run.",
            f"It grew through the last {plural(term.trend.points, 'reading')}.",
        ),
    )


def _native(term: Term, native: list[NativeGrowth], ledger: Ledger) -> Finding:
    """Return what is known of growth that sampled native allocations account for."""
    left, first = term.trend.net_bytes, native[0]
    place = f", called at {first.location}" if first.location else ""
    rows = "; ".join(
        f"{n.name}{' at ' + n.location if n.location else ''} {human_bytes(n.gained_bytes)}"
        for n in native[:MOST_SITES]
    )
    return finding(
        "unexplained",
        f"Native memory grows in {first.library}{place}",
        f"{human_bytes(left)} of growth ({human_share(min(term.share, 1.0))}) is in no Python "
        f"object. Of sampled native allocations these go on growing (estimates): {rows}."
        f"{_beside(ledger)}",
        CALL_LESS,
        severity=Severity.WARNING,
        trend=term.trend,
        share=term.share,
        total_bytes=left,
        fed_at=list(dict.fromkeys(n.location for n in native[:MOST_SITES] if n.location)),
        falsifier=(
            "A warm-up of the library would have ended within the run.",
            f"It grew through the last {plural(term.trend.points, 'reading')}.",
        ),
    )


def _beside(ledger: Ledger) -> str:
    """Return what else grew by much of what memory did, the greatest first."""
    others = sorted(ledger.entries, key=lambda e: -e.bytes)
    least = max(policy.GAUGE_NOISE_BYTES, policy.UNNAMED_SHARE * ledger.total_bytes)
    known = [e for e in others if e.kind != "unexplained" and e.bytes >= least]
    told = ", ".join(f"{_short(e)} {human_bytes(e.bytes)}" for e in known[:3])
    return f" Beside it grew: {told}." if told else ""


def _short(entry: LedgerEntry) -> str:
    return entry.label.partition(":")[0]


def _of_shapes(case: Case, company: Company, term: Term) -> Finding:
    left = term.trend.net_bytes
    amount = f"{human_bytes(left)} of growth ({human_share(min(term.share, 1.0))})"
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
        trend=term.trend,
        share=term.share,
        total_bytes=left,
        falsifier=(FALSIFIER, None),
    )


def in_use(ledger: Ledger) -> int:
    """Return by how much all that has a name, or is known otherwise, grew in use."""
    return sum(max(entry.bytes, 0) for entry in ledger.entries if entry.kind in _IN_USE)
