"""Which kinds of growth a run shows: one table, read off what was concluded already.

Nothing is judged here. Each kind is answered by what a report has of it: culprits, findings, what
was cleared, terms of the ledger. Whether memory leaks is what the verdict says, and nothing else.
Where what would show a kind was never read, the answer is that, and not that it is absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import msgspec

from leakscope.analysis.growth import policy
from leakscope.analysis.growth.exclusions import PINNED
from leakscope.analysis.processes.children import MAIN
from leakscope.model import gauge
from leakscope.model.report import (
    Answer,
    Cleared,
    Culprit,
    Finding,
    KindAnswer,
    KindOfGrowth,
    Report,
    RunVerdict,
    Severity,
    ShownIn,
)

_OF_GARBAGE = frozenset({"garbage", "collector_off", "collector_frozen"})
_OF_CHILDREN = frozenset({"children", "worker_processes", "processes"})
_OF_COPIES = frozenset({"copy_on_write", "worker_copies"})


def find_kinds(report: Report) -> list[KindAnswer]:
    """Return an answer for each kind of growth, in the order of their table."""
    return [answer(report) for answer in _ANSWERS]


def _leak(report: Report) -> KindAnswer:
    if report.verdict is RunVerdict.LEAK:
        return _accused(report)
    is_open = report.verdict is RunVerdict.INCONCLUSIVE or report.missing
    answer = Answer.UNDECIDED if is_open else Answer.NO
    return KindAnswer(kind=KindOfGrowth.LEAK, answer=answer)


def _accused(report: Report) -> KindAnswer:
    """Return what the accused have gained, what several hold once."""
    culprits = [c for c in report.culprits if c.severity is not Severity.NOTE]
    findings = [f for f in report.findings if f.severity is not Severity.NOTE]
    across = [c for c in culprits if c.growth == "across"]
    names = {name for c in across for name in (c.name, *c.also_named)}
    gained = [
        c.gained_bytes
        for position, c in enumerate(across)
        if not position or not names.intersection(c.also_held_by)
    ]
    if across:
        return _yes(KindOfGrowth.LEAK, sum(gained), ShownIn.CULPRITS, across[0])
    accused: list[Culprit | Finding] = [*culprits, *findings]
    first = accused[0]
    size = first.gained_bytes if isinstance(first, Culprit) else first.total_bytes
    section = ShownIn.CULPRITS if isinstance(first, Culprit) else ShownIn.FINDINGS
    return _yes(KindOfGrowth.LEAK, size or None, section, first)


def _cache(report: Report) -> KindAnswer:
    bounded = [c for c in report.cleared if c.kind == "bounded"]
    if bounded:
        return _of_cleared(KindOfGrowth.CACHE, bounded)
    return _no(KindOfGrowth.CACHE, is_read=_has_censuses(report))


def _of_cleared(kind: KindOfGrowth, found: list[Cleared], least: int = 0) -> KindAnswer:
    return KindAnswer(
        kind=kind,
        answer=Answer.YES,
        bytes=max(least, sum(c.total_bytes for c in found)),
        section=ShownIn.CLEARED,
        subject=max(found, key=lambda c: c.total_bytes).name,
    )


def _peak(report: Report) -> KindAnswer:
    within = [c for c in report.culprits if c.growth == "within"]
    if within:
        highest = max(within, key=lambda c: c.gained_bytes or c.total_bytes)
        size = highest.gained_bytes or highest.total_bytes
        return _yes(KindOfGrowth.PEAK, size, ShownIn.CULPRITS, highest)
    return _no(KindOfGrowth.PEAK, is_read=_has_censuses(report))


def _fragmentation(report: Report) -> KindAnswer:
    lies_between = any(d.subject == "slack" and d.rule == PINNED for d in report.decisions)
    kinds = ("fragmentation", "allocator_slack") if lies_between else ("fragmentation",)
    is_read = _is_read(report, gauge.MALLOC_FREE)
    return _by_findings(report, KindOfGrowth.FRAGMENTATION, kinds, is_read=is_read)


def _copies(report: Report) -> KindAnswer:
    kind = KindOfGrowth.COPY_ON_WRITE
    if found := _findings(report, _OF_COPIES):
        return _of_findings(kind, found)
    copying = [w for w in report.workers if w.copies]
    if copying:
        gained = [(w.private_last_bytes or 0) - (w.private_first_bytes or 0) for w in copying]
        return KindAnswer(
            kind=kind,
            answer=Answer.YES,
            bytes=max(sum(gained), 0),
            section=ShownIn.WORKERS,
            subject=copying[0].copies[0],
        )
    recorded = bool(report.workers) or any(p.is_recorded for p in report.processes)
    had_none = any(g.metric == gauge.CHILDREN and not g.highest for g in report.overhead.gauged)
    return _no(kind, is_read=recorded or had_none)


def _files(report: Report) -> KindAnswer:
    kind = KindOfGrowth.FILES
    term = _term(report, "mapped")
    read = [c for c in report.cleared if c.kind == "mapped"]
    if read:
        return _of_cleared(kind, read, term)
    if term >= policy.NOTEWORTHY_BYTES:
        return _of_term(kind, term)
    return _no(kind, is_read=_is_read(report, gauge.MAPPED, gauge.TREE_FILES))


def _allocator(report: Report) -> KindAnswer:
    is_read = _is_read(report, gauge.MALLOC_FREE)
    kind, least = KindOfGrowth.ALLOCATOR, policy.GROWTH_BYTES
    return _by_findings(report, kind, ("allocator_slack",), "slack", least, is_read=is_read)


def _garbage(report: Report) -> KindAnswer:
    found = [f for f in report.findings if f.total_bytes >= policy.NOTEWORTHY_BYTES]
    report = msgspec.structs.replace(report, findings=found)
    kind, least, is_read = KindOfGrowth.GARBAGE, policy.NOTEWORTHY_BYTES, _has_censuses(report)
    return _by_findings(report, kind, _OF_GARBAGE, "garbage", least, is_read=is_read)


def _children(report: Report) -> KindAnswer:
    kind = KindOfGrowth.CHILDREN
    inside = [
        c
        for c in report.culprits
        if c.severity is not Severity.NOTE and (c.workers or c.process not in ("", MAIN))
    ]
    if inside:
        gained = sum(c.gained_bytes * max(c.workers, 1) for c in inside)
        return _yes(kind, gained, ShownIn.CULPRITS, inside[0])
    least, is_read = policy.HARMLESS_BYTES, _is_read(report, gauge.CHILDREN, gauge.CHILDREN_PSS)
    return _by_findings(report, kind, _OF_CHILDREN, "children", least, is_read=is_read)


def _device_cache(report: Report) -> KindAnswer:
    # A program that used no device has no cache of one; from outside none would be seen.
    kind, least, is_read = KindOfGrowth.DEVICE_CACHE, policy.COSTLY_BYTES, _has_censuses(report)
    return _by_findings(report, kind, ("device_cache",), "cached", least, is_read=is_read)


_ANSWERS: tuple[Callable[[Report], KindAnswer], ...] = (
    _leak,
    _cache,
    _peak,
    _fragmentation,
    _copies,
    _files,
    _allocator,
    _garbage,
    _children,
    _device_cache,
)


def _findings(report: Report, kinds: Collection[str]) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind in kinds]


def _by_findings(
    report: Report,
    kind: KindOfGrowth,
    kinds: Collection[str],
    term: str = "",
    least: float = math.inf,
    *,
    is_read: bool,
) -> KindAnswer:
    """Return the answer by findings of some kinds, else by a term that gained so much at least."""
    if found := _findings(report, kinds):
        return _of_findings(kind, found)
    size = _term(report, term)
    return _of_term(kind, size) if size >= least else _no(kind, is_read=is_read)


def _of_findings(kind: KindOfGrowth, found: list[Finding]) -> KindAnswer:
    largest = max(found, key=lambda finding: finding.total_bytes)
    return _yes(kind, largest.total_bytes or None, ShownIn.FINDINGS, largest)


def _of_term(kind: KindOfGrowth, size: int) -> KindAnswer:
    return KindAnswer(kind=kind, answer=Answer.YES, bytes=size, section=ShownIn.LEDGER)


def _yes(
    kind: KindOfGrowth, size: int | None, section: ShownIn, shown: Culprit | Finding
) -> KindAnswer:
    name = shown.name if isinstance(shown, Culprit) else shown.title
    return KindAnswer(
        kind=kind,
        answer=Answer.YES,
        bytes=size,
        section=section,
        subject=name,
        signature=shown.signature,
    )


def _no(kind: KindOfGrowth, *, is_read: bool) -> KindAnswer:
    return KindAnswer(kind=kind, answer=Answer.NO if is_read else Answer.NOT_MEASURED)


def _term(report: Report, kind: str) -> int:
    return sum(e.bytes for ledger in report.ledgers for e in ledger.entries if e.kind == kind)


def _has_censuses(report: Report) -> bool:
    return report.overhead.censuses > 0 or bool(report.overhead.taken)


def _is_read(report: Report, *gauges: str) -> bool:
    return any(gauged.metric in gauges for gauged in report.overhead.gauged)
