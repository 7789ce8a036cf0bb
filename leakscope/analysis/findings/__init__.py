"""Diagnoses: findings that are no container.

Each takes what it needs of the run and yields findings without rank; this package ranks them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from leakscope.analysis.accounting.compiled_code import diagnose_compiled_code
from leakscope.analysis.accounting.native import growing_allocations
from leakscope.analysis.allocator import run_findings
from leakscope.analysis.columns.series import HOST
from leakscope.analysis.findings import (
    garbage,
    gauge_rules,
    native_references,
    out_of_memory,
    training_loop,
    unnamed,
)
from leakscope.analysis.growth.search import SearchResult
from leakscope.analysis.remedies.catalogue import KnownMatch, prefer_known_remedy
from leakscope.analysis.run_context import RunContext
from leakscope.analysis.source.index import lines_that_call
from leakscope.analysis.verdict.severity import SEVERITY_ORDER
from leakscope.analysis.verdict.wording import finding_signature
from leakscope.model.device import OutOfMemory
from leakscope.model.report import Culprit, Finding, Ledger, Severity
from leakscope.model.text import human_bytes

_KINDS_FROM_WITHIN = {"unexplained", "children"}
"""They are all that can be reported of a process that is only watched."""
_OBJECTS_OF_NATIVE_CODE = {"native_held", "leaked_references", "gradient_cycle", "autograd_loop"}
"""What native code allocated for such objects lives as long as they."""
_EXPLAINING_KINDS = _OBJECTS_OF_NATIVE_CODE | {
    "open_figures", "registry", "tasks", "threads", "garbage", "collector_off", "collector_frozen",
}  # fmt: skip
"""With one of these, unexplained growth has an explanation already, and so has free memory that
rises: it lies between what they keep."""


def find_findings(
    case: RunContext,
    growth: SearchResult,
    ledgers: list[Ledger],
    ended: OutOfMemory | None = None,
    culprits: Sequence[Culprit] = (),
) -> list[Finding]:
    """Return what all diagnoses found, the worst first; ``ended`` is how memory ended the run."""
    found = [
        *out_of_memory.diagnose_out_of_memory(case, ended),
        *diagnose_compiled_code(case),
        *garbage.diagnose_collector(case, growth, ledgers),
        *garbage.diagnose_garbage(case, growth, ledgers),
        *garbage.diagnose_slack(case, growth),
        *garbage.diagnose_collector_time(case),
        *garbage.diagnose_cleaning_calls(case),
        *gauge_rules.diagnose_gauges(case, growth, ledgers),
        *unnamed.diagnose_native(case, growth),
        *training_loop.diagnose_numbered_names(case, growth),
        *run_findings.diagnose_devices(case, growth, ledgers),
        *training_loop.diagnose_outliving(case, growth),
        *training_loop.diagnose_gradients(case),
        *unnamed.diagnose_deep_graphs(case, growth),
        *unnamed.diagnose_unexplained(case, growth, ledgers),
        *unnamed.diagnose_watched(case),
    ]
    kinds = {pileup.group.kind.value for pileup in gauge_rules.find_pileups(case)}
    found = native_references.with_registries(case, growth, ledgers, found, kinds)
    piled_up = [*gauge_rules.diagnose_pileups(case, growth, ledgers, culprits)]
    reported = {f.kind for f in piled_up} | {f"{c.piled_up.kind}s" for c in culprits if c.piled_up}
    found = [f for f in found if f.kind != "threads" or "threads" not in reported] + piled_up
    if case.is_watched:
        found = [f for f in found if f.kind not in _KINDS_FROM_WITHIN]
    explaining = [
        f for f in found if f.kind in _EXPLAINING_KINDS and f.severity is not Severity.NOTE
    ]
    is_explained = bool(explaining)
    if any(not _is_unexplained(f) for f in explaining):
        nameless = [f for f in found if f.signature == finding_signature("unexplained", HOST)]
        found = [f for f in found if not _is_unexplained(f)]
        if nameless and all(f.kind in _OBJECTS_OF_NATIVE_CODE for f in explaining):
            found = _with_nameless(found, nameless[0])
    elif is_explained:
        found = [f for f in found if f.kind != "unexplained"]
    found = [_recognised(case, finding) for finding in found]
    found.sort(
        key=lambda f: (
            SEVERITY_ORDER[f.severity],
            is_explained and f.kind == "allocator_slack",
            -f.total_bytes,
        )
    )
    return [msgspec.structs.replace(f, rank=rank) for rank, f in enumerate(found, 1)]


def _is_unexplained(finding: Finding) -> bool:
    """Return whether a finding is of growth that no name and no other finding explains."""
    is_unreached = finding.signature == finding_signature(finding.kind, HOST, unnamed.UNREACHED)
    return finding.kind == "unexplained" or is_unreached


def _with_nameless(found: list[Finding], nameless: Finding) -> list[Finding]:
    """Return findings, the heaviest of objects that native code has with what grows in no object.

    A traced graph or a decoder's buffers are in no object that the walk can weigh.
    """
    objects = [f for f in found if f.kind in _OBJECTS_OF_NATIVE_CODE and f.unit == nameless.unit]
    first = max(objects, key=lambda f: f.total_bytes, default=None)
    rate = f"{human_bytes(nameless.bytes_per_unit)} per {nameless.unit}"
    sentence = f"Memory in no Python object grows along with them, by {rate} (estimate)."
    return [unnamed.with_more(f, nameless, sentence) if f is first else f for f in found]


def _recognised(case: RunContext, finding: Finding) -> Finding:
    match = _known(case, finding)
    if match is None:
        return finding
    known, remedy = match.known, prefer_known_remedy(match.known, finding.remedy)
    title, fed_at = finding.title, finding.fed_at
    if known.match.native:
        started = lines_that_call(case.sources, known.match.started_by)
        place = f", started at {started[0]}" if started else ""
        title, fed_at = f"{known.title}{place}", list(dict.fromkeys([*started, *fed_at]))
    return msgspec.structs.replace(
        finding, title=title, fed_at=fed_at, known=match.recognised, remedy=remedy
    )


def _known(case: RunContext, finding: Finding) -> KnownMatch | None:
    """Return the catalogue entry for a finding that has none yet, if any."""

    def native() -> Mapping[str, float]:
        grown: defaultdict[str, float] = defaultdict(float)
        for each in growing_allocations(case):
            grown[each.function] += each.gained_bytes
        return grown

    return case.known_of_finding(finding.kind, native) if finding.known is None else None
