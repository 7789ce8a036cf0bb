"""What the ledger's remainder is put down to, as an estimate: things that are counted, not weighed.

No census weighs the pixels of open figures. Where they become ever more they may hold what nothing
else explains.
"""

from __future__ import annotations

import msgspec

from leakscope.analysis.advice import host_advice
from leakscope.analysis.case import Case
from leakscope.analysis.ledger import host_ledger
from leakscope.model.report import Finding, Ledger, LedgerEntry, Severity

_TERMS = {"open_figures": "open figures"}
"""The term of each kind of finding."""


def with_imputed(case: Case, ledgers: list[Ledger], findings: list[Finding]) -> list[Ledger]:
    """Return the ledgers with the host's remainder put down to what was counted."""
    if host_ledger(ledgers) is None or case.window is None:
        return ledgers
    host, *devices = ledgers
    *known, remainder = host.entries
    for finding in findings:
        label = _TERMS.get(finding.kind)
        moved = min(finding.total_bytes, remainder.bytes)
        if label is None or finding.severity is Severity.NOTE or moved <= 0:
            continue
        known.append(LedgerEntry(label=label, bytes=moved, kind="imputed", note="an estimate"))
        remainder = msgspec.structs.replace(remainder, bytes=remainder.bytes - moved)
    entries = [*known, remainder]
    advice = host_advice(host.total_bytes, entries)
    return [msgspec.structs.replace(host, entries=entries, advice=advice), *devices]
