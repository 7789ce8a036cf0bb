"""Diagnoses that are no container, one module each: a name, what it finds, what it may confuse.

Each takes the case and its growth and returns findings without rank; this package ranks them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses import (
    allocation_retries,
    children,
    collector,
    device_cache,
    device_fragmentation,
    device_leak,
    garbage,
    gauges,
    gradients,
    native,
    numbered_names,
    out_of_memory,
    outliving,
    pending_free,
    shared_descriptors,
    shared_memory,
    slack,
    tiny_blocks,
    unexplained,
    watched,
)
from leakscope.analysis.search import Growth
from leakscope.model.report import Finding, Ledger, Severity
from leakscope.model.shortage import OutOfMemory

DIAGNOSES: tuple[Callable[[Case, Growth, list[Ledger]], list[Finding]], ...] = (
    collector.diagnose,
    garbage.diagnose,
    slack.diagnose,
    children.diagnose,
    gauges.diagnose,
    shared_memory.diagnose,
    shared_descriptors.diagnose,
    native.diagnose,
    numbered_names.diagnose,
    device_leak.diagnose,
    device_fragmentation.diagnose,
    device_cache.diagnose,
    pending_free.diagnose,
    allocation_retries.diagnose,
    tiny_blocks.diagnose,
    outliving.diagnose,
    gradients.diagnose,
    unexplained.diagnose,
    watched.diagnose,
)
_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def find_findings(
    case: Case, growth: Growth, ledgers: list[Ledger], ended: OutOfMemory | None = None
) -> list[Finding]:
    """Return what all diagnoses found, the worst first; ``ended`` is how memory ended the run."""
    found = out_of_memory.diagnose(case, ended)
    found += [finding for diagnose in DIAGNOSES for finding in diagnose(case, growth, ledgers)]
    if case.is_watched:
        found = [f for f in found if f.kind not in _SEEN_FROM_WITHIN]
    if any(f.kind in _EXPLAINS for f in found if f.severity is not Severity.NOTE):
        found = [f for f in found if f.kind != "unexplained"]
    found.sort(key=lambda f: (_ORDER[f.severity], -f.total_bytes))
    return [msgspec.structs.replace(f, rank=rank) for rank, f in enumerate(found, 1)]


_SEEN_FROM_WITHIN = {"unexplained", "children"}
"""What they say of their process is the whole of what can be said of one that is only watched."""
_EXPLAINS = {"open_figures", "garbage", "collector_off", "native_held", "gradient_cycle"}
"""With one of these, unexplained growth has an explanation already."""
