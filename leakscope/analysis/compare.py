"""Two runs held side by side: what became of each culprit, and whether the work was the same."""

from __future__ import annotations

from math import isfinite

import msgspec

from leakscope.analysis.comparing.changes import change_of
from leakscope.analysis.comparing.facts import work_facts
from leakscope.analysis.comparing.headline import verdict_in_words
from leakscope.analysis.comparing.matching import pair
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
    changes = [
        _elsewhere(change_of(b, a, before, after))
        if is_other and a is None
        else change_of(b, a, before, after)
        for b, a in pair(before, after)
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


def _elsewhere(change: CulpritChange) -> CulpritChange:
    text = f"{change.name} was not seen in the other script, which did other work."
    return msgspec.structs.replace(change, text=text, is_elsewhere=True, significant=False)


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
