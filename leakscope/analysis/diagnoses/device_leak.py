"""Live device memory that grows and that no name explains.

Finds: allocated bytes that rise from boundary to boundary while the names that a census found on
the device hold less than they should: tensors kept by native code, by an autograd graph that only
C++ refers to, by a buffer of a library.

How: the trend of the allocator's own count, less what the culprits of that device gain.

May be confused with: optimizer state at the first step (one jump), caches by shape (they level
off), garbage in cycles (it falls back), and a culprit whose censuses lie elsewhere than the gauges.
Hence growth must go on through all thirds of the run, and be mostly unnamed.

Costs nothing beyond the gauges.
"""

from __future__ import annotations

from leakscope.analysis.case import Case
from leakscope.analysis.devices.owners import find_owners, unexplained_rows
from leakscope.analysis.diagnoses.build import finding
from leakscope.analysis.search import Growth
from leakscope.analysis.severity import MIB
from leakscope.model import gauge
from leakscope.model.census import CensusScope, RootKind
from leakscope.model.report import Finding, Ledger, Remedy, Severity
from leakscope.model.sizes import human_bytes, human_count, human_share

GROWTH_BYTES = 32 * MIB
UNNAMED_SHARE = 0.4

REMEDY = Remedy(
    title="Find what allocates it: --cuda-history window",
    text=(
        "With that option of `leakscope run` the report has the lines that allocated what stays. "
        "Tensors without a Python name are kept by autograd graphs, by exceptions that were raised "
        "in backward(), by communication buffers or by C++ extensions."
    ),
)

COLLECT = Remedy(
    title="Break the circles that keep tensors alive, or collect at the end of each epoch",
    text=(
        "Objects that refer to each other in a circle are freed only by the collector, and it "
        "counts objects, not bytes. Break the circle (weakref, del self.x), or call "
        "gc.collect() where large tensors have just been dropped."
    ),
)


def diagnose(case: Case, growth: Growth, ledgers: list[Ledger]) -> list[Finding]:
    """Return a finding for each device on which unnamed live memory grows."""
    return [
        f for d in case.track.devices if (f := _of_device(case, growth, ledgers, d)) is not None
    ]


def _named(case: Case, growth: Growth, device: str) -> float:
    """Return what names gained, those of caches among them that will stop at a bound."""
    across = [g for g in growth.growers if g.growth == "across"]
    return sum(case.gain_of(g) for g in [*across, *growth.filling] if g.device == device)


def _unnamed(ledgers: list[Ledger], device: str) -> float:
    """Return which part of what came to be allocated on a device its ledger could put under no
    name; 1 without a ledger.
    """
    mine = [ledger for ledger in ledgers if ledger.metric.startswith(f"{device}.")]
    entries = [entry for ledger in mine for entry in ledger.entries]
    free = sum(e.bytes for e in entries if e.kind in ("cached", "fragmentation"))
    whole = sum(ledger.total_bytes for ledger in mine) - free
    left = sum(e.bytes for e in entries if e.kind == "unnamed")
    return left / whole if whole > 0 else 1.0


def _held(case: Case, device: str, root: RootKind) -> int:
    """Return what the last full census found on a device under no name, by who keeps it."""
    full = [c for c in case.table.censuses if c.scope is CensusScope.FULL]
    rows = full[-1].rows if full else []
    return sum(r.device_bytes.get(device, 0) for r in rows if r.root is root and not r.parent)


def _seen(garbage: int, native: int) -> str:
    told = [(garbage, "awaited the collector"), (native, "was held by native code alone")]
    parts = [f"{human_bytes(size)} {what}" for size, what in told if size >= GROWTH_BYTES]
    return f" At the last full census {' and '.join(parts)}." if parts else ""


def _blocks(case: Case, device: str) -> str:
    """Return which blocks nothing explained where they were listed."""
    state = case.device_states.get(device)
    rows = [] if state is None else unexplained_rows(find_owners(state).blocks)
    if not rows:
        return ""
    places = f", allocated at {rows[0].allocated_at}" if rows[0].allocated_at else ""
    return (
        f" Most of what had no owner when its blocks were listed: {human_count(rows[0].count)} "
        f"of {human_bytes(rows[0].size)}{places}."
    )


def _of_device(case: Case, growth: Growth, ledgers: list[Ledger], device: str) -> Finding | None:
    metric = f"{device}.{gauge.DEVICE_ALLOCATED}"
    trend = case.gauge_trend(metric)
    if not trend.is_growing:
        return None
    unnamed = _unnamed(ledgers, device) * trend.net_bytes
    left = min(trend.net_bytes - _named(case, growth, device), unnamed)
    if left < max(GROWTH_BYTES, UNNAMED_SHARE * trend.net_bytes):
        return None
    share = left / trend.net_bytes
    garbage = _held(case, device, RootKind.GARBAGE)
    native = _held(case, device, RootKind.NATIVE)
    return finding(
        "device_leak",
        f"Live memory without a name grows on {device}",
        f"Live tensors grew by {human_bytes(trend.net_bytes)}; {human_bytes(left)} of that "
        f"({human_share(share)}) is held by nothing that a census found: it is neither the "
        f"allocator's cache nor fragmentation.{_seen(garbage, native)}{_blocks(case, device)}",
        COLLECT if garbage > left / 2 else REMEDY,
        severity=Severity.WARNING,
        trend=trend,
        share=share,
        total_bytes=left,
        device=device,
        falsifier=("A warm-up would have ended within the run.", "It went on in each third."),
    )
