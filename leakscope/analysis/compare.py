"""Two runs held side by side: what became of each culprit, and whether the work was the same."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import PurePath

import msgspec

from leakscope.analysis.comparing.changes import change_of, name_of, own_text
from leakscope.analysis.comparing.facts import work_facts
from leakscope.analysis.comparing.headline import verdict_in_words
from leakscope.analysis.comparing.matching import Suspect, pair, perhaps_renamed
from leakscope.analysis.comparing.processes import rank_pairs, worker_pairs
from leakscope.analysis.comparing.values import component_changes, growth_changes, peak_changes
from leakscope.analysis.comparing.work import is_another_program, work_differences
from leakscope.analysis.retained import join_retained
from leakscope.model.comparison import Change, Comparison, CulpritChange, RunCost
from leakscope.model.report import Report, Severity

_ORDER = [Change.FIXED, Change.REDUCED, Change.UNCHANGED, Change.WORSE, Change.NEW]


def compare(before: Report, after: Report) -> Comparison:
    """Return what changed from one run to the other."""
    is_other = is_another_program(before, after)
    pairs = pair(before, after)
    renamed = perhaps_renamed(pairs)
    changes = [
        _elsewhere(change_of(b, a, before, after), after)
        if is_other and (a is None or b is None)
        else _renamed(change_of(b, a, before, after), renamed)
        for b, a in pairs
    ]
    changes.sort(key=lambda c: (c.severity is Severity.NOTE, _ORDER.index(c.change)))
    peaks = peak_changes(before, after)
    headline, *details = verdict_in_words(changes, peaks, before, after)
    return Comparison(
        headline=headline,
        details=details,
        before=before.run,
        after=after.run,
        before_verdict=before.verdict,
        after_verdict=after.verdict,
        culprits=changes,
        growth=growth_changes(before.growth, after.growth),
        components=component_changes(before, after),
        peaks=peaks,
        work_differences=work_differences(before, after),
        is_another_program=is_other,
        before_timeline=before.timeline,
        after_timeline=after.timeline,
        work=work_facts(before, after),
        before_cost=_cost(before),
        after_cost=_cost(after),
        ranks=rank_pairs(before.ranks, after.ranks),
        before_odd_rank=before.odd_rank,
        after_odd_rank=after.odd_rank,
        before_rank_courses=before.rank_courses,
        after_rank_courses=after.rank_courses,
        workers=worker_pairs(before.workers, after.workers),
        retained=join_retained(before.retained, after.retained),
    )


def _renamed(change: CulpritChange, renamed: Mapping[str, Suspect]) -> CulpritChange:
    """Return a change with what is to be said of a culprit that may only have another name now."""
    was = renamed.get(change.signature)
    if was is None or change.change is not Change.NEW or change.is_unproven:
        return change
    text = f"{change.text.removesuffix('.')}, as {name_of(was)} did; it may be the same, renamed."
    return msgspec.structs.replace(change, text=text)


def _elsewhere(change: CulpritChange, after: Report) -> CulpritChange:
    """Return what is said of a culprit that only one of two scripts has: neither new nor fixed."""
    text = f"{change.name} was not seen in the other script, which did other work."
    if change.change is Change.NEW:
        text = own_text(change, PurePath(after.run.script).name)
    return msgspec.structs.replace(
        change, text=text, is_elsewhere=True, significant=False, doubt="", is_unproven=False
    )


def _cost(report: Report) -> RunCost:
    """Return what a run took, measuring included."""
    lines = report.timeline.lines if report.timeline else []
    readings = [y for _, y in lines[0].points if isfinite(y)] if lines else []
    return RunCost(
        work=report.work,
        peak_bytes=int(max(readings)) if readings else None,
        overhead=report.overhead,
        problems=len(report.errors),
    )
