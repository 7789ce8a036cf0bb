"""What the ledger's remainder is put down to, as an estimate: growth that findings tell of.

No census weighs the pixels of open figures, and what native code alone holds or the collector would
free is weighed only when the whole heap is walked, which happens a few times in a run. The rate of
such a finding, times the work done in the ledger's window, is taken out of the remainder.
"""

from __future__ import annotations

import msgspec

from leakscope.analysis.advice import host_advice
from leakscope.analysis.case import Case
from leakscope.analysis.diagnoses.garbage import garbage_rate
from leakscope.analysis.ledger import host_ledger
from leakscope.analysis.series import HOST
from leakscope.model.report import Finding, Ledger, LedgerEntry, Severity

_GARBAGE = "garbage awaiting the collector"
_NATIVE = "objects that only native code holds"
_TERMS = {
    "open_figures": ("open figures", "imputed"),
    "native_held": (_NATIVE, "imputed"),
    "gradient_cycle": (_NATIVE, "imputed"),
    "garbage": (_GARBAGE, "garbage"),
    "collector_off": (_GARBAGE, "garbage"),
}
"""For each kind of finding the term that it adds to, and that term's kind."""


def with_imputed(case: Case, ledgers: list[Ledger], findings: list[Finding]) -> list[Ledger]:
    """Return the ledgers with the host's remainder shared out among findings that explain it."""
    if host_ledger(ledgers) is None or case.window is None:
        return ledgers
    host, *devices = ledgers
    entries = list(host.entries)
    done = case.unit.done[case.window.last] - case.unit.done[case.window.first]
    for finding in (one for one in findings if one.device == HOST):
        if finding.kind in _TERMS and finding.severity is not Severity.NOTE:
            entries = _shared_out(entries, finding.kind, _estimate(case, finding, float(done)))
    if entries == host.entries:
        return ledgers
    advice = host_advice(host.total_bytes, entries)
    return [msgspec.structs.replace(host, entries=entries, advice=advice), *devices]


def _estimate(case: Case, finding: Finding, done: float) -> int:
    """Return the bytes that a finding may have added in so many units of work."""
    if finding.kind == "open_figures":
        return finding.total_bytes
    is_garbage = _TERMS[finding.kind][1] == "garbage"
    return round(done * (garbage_rate(case) if is_garbage else finding.bytes_per_unit))


def _shared_out(entries: list[LedgerEntry], kind: str, estimate: int) -> list[LedgerEntry]:
    """Move what a finding explains from the remainder, which comes last, to its own term."""
    *known, remainder = entries
    label, term = _TERMS[kind]
    weighed = sum(entry.bytes for entry in known if entry.label == label)
    moved = min(estimate - weighed, remainder.bytes)
    if remainder.kind != "unexplained" or moved <= 0:
        return entries
    known = [entry for entry in known if entry.label != label]
    note = "an estimate"
    known.append(LedgerEntry(label=label, bytes=weighed + moved, kind=term, note=note))
    return [*known, msgspec.structs.replace(remainder, bytes=remainder.bytes - moved)]
