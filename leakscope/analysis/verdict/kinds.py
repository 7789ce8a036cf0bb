"""Which kinds of growth a run shows: one table, read off what was concluded already.

Nothing is judged here. Each kind is answered by what a report has of it: culprits, findings, what
was cleared, terms of the ledger. Whether memory leaks is what the verdict says, and nothing else.
Where what would show a kind was never read, the answer is that, and not that it is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leakscope.analysis.growth import policy
from leakscope.analysis.growth.exclusions import PINNED
from leakscope.analysis.processes.children import MAIN
from leakscope.model import gauge
from leakscope.model.report import (
    Answer,
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
    kind = KindOfGrowth.LEAK
    if report.verdict is RunVerdict.LEAK:
        return _accused(report)
    if report.verdict is RunVerdict.INCONCLUSIVE or report.missing:
        return KindAnswer(kind=kind, answer=Answer.UNDECIDED)
    return KindAnswer(kind=kind, answer=Answer.NO)


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
    return _yes(
        KindOfGrowth.LEAK,
        size or None,
        ShownIn.CULPRITS if isinstance(first, Culprit) else ShownIn.FINDINGS,
        first,
    )


def _cache(report: Report) -> KindAnswer:
    bounded = [c for c in report.cleared if c.kind == "bounded"]
    if bounded:
        largest = max(bounded, key=lambda c: c.total_bytes)
        return KindAnswer(
            kind=KindOfGrowth.CACHE,
            answer=Answer.YES,
            bytes=sum(c.total_bytes for c in bounded),
            section=ShownIn.CLEARED,
            subject=largest.name,
        )
    return _no(KindOfGrowth.CACHE, is_read=_has_censuses(report))


def _peak(report: Report) -> KindAnswer:
    within = [c for c in report.culprits if c.growth == "within"]
    if within:
        highest = max(within, key=lambda c: c.gained_bytes or c.total_bytes)
        size = highest.gained_bytes or highest.total_bytes
        return _yes(KindOfGrowth.PEAK, size, ShownIn.CULPRITS, highest)
    return _no(KindOfGrowth.PEAK, is_read=_has_censuses(report))


def _fragmentation(report: Report) -> KindAnswer:
    kind = KindOfGrowth.FRAGMENTATION
    found = _findings(report, {"fragmentation"})
    lies_between = any(d.subject == "slack" and d.rule == PINNED for d in report.decisions)
    found += _findings(report, {"allocator_slack"}) if lies_between else []
    if found:
        return _of_findings(kind, found)
    return _no(kind, is_read=_is_read(report, gauge.MALLOC_FREE))


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
    return _no(
        kind,
        is_read=recorded
        or next((g.highest for g in report.overhead.gauged if g.metric == gauge.CHILDREN), None)
        == 0,
    )


def _files(report: Report) -> KindAnswer:
    kind = KindOfGrowth.FILES
    term = _term(report, "mapped")
    read = [c for c in report.cleared if c.kind == "mapped"]
    if read:
        largest = max(read, key=lambda c: c.total_bytes)
        return KindAnswer(
            kind=kind,
            answer=Answer.YES,
            bytes=max(term, sum(c.total_bytes for c in read)),
            section=ShownIn.CLEARED,
            subject=largest.name,
        )
    if term >= policy.NOTEWORTHY_BYTES:
        return _of_term(kind, term)
    return _no(kind, is_read=_is_read(report, gauge.MAPPED, gauge.TREE_FILES))


def _allocator(report: Report) -> KindAnswer:
    kind = KindOfGrowth.ALLOCATOR
    if found := _findings(report, {"allocator_slack"}):
        return _of_findings(kind, found)
    term = _term(report, "slack")
    if term >= policy.GROWTH_BYTES:
        return _of_term(kind, term)
    return _no(kind, is_read=_is_read(report, gauge.MALLOC_FREE))


def _garbage(report: Report) -> KindAnswer:
    kind = KindOfGrowth.GARBAGE
    found = [f for f in _findings(report, _OF_GARBAGE) if f.total_bytes >= policy.NOTEWORTHY_BYTES]
    if found:
        return _of_findings(kind, found)
    term = _term(report, "garbage")
    if term >= policy.NOTEWORTHY_BYTES:
        return _of_term(kind, term)
    return _no(kind, is_read=_has_censuses(report))


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
    if found := _findings(report, _OF_CHILDREN):
        return _of_findings(kind, found)
    term = _term(report, "children")
    if term >= policy.HARMLESS_BYTES:
        return _of_term(kind, term)
    return _no(kind, is_read=_is_read(report, gauge.CHILDREN, gauge.CHILDREN_PSS))


def _device_cache(report: Report) -> KindAnswer:
    kind = KindOfGrowth.DEVICE_CACHE
    if found := _findings(report, {"device_cache"}):
        return _of_findings(kind, found)
    term = _term(report, "cached")
    if term >= policy.COSTLY_BYTES:
        return _of_term(kind, term)
    # A program that used no device has no cache of one; from outside none would be seen.
    return _no(kind, is_read=_has_censuses(report))


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


def _findings(report: Report, kinds: Iterable[str]) -> list[Finding]:
    wanted = frozenset(kinds)
    return [finding for finding in report.findings if finding.kind in wanted]


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
    """Return what terms of a kind gained in all ledgers."""
    return sum(e.bytes for ledger in report.ledgers for e in ledger.entries if e.kind == kind)


def _has_censuses(report: Report) -> bool:
    return report.overhead.censuses > 0 or bool(report.overhead.taken)


def _is_read(report: Report, *gauges: str) -> bool:
    return any(gauged.metric in gauges for gauged in report.overhead.gauged)
