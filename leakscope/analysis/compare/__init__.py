"""Two runs held side by side: what became of each culprit, and whether the work was the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import PurePath

import msgspec

from leakscope.analysis.compare.culprits import (
    Suspect,
    change_of,
    component_changes,
    growth_changes,
    name_of,
    only_in_one_script_text,
    pair,
    peak_changes,
    perhaps_renamed,
)
from leakscope.analysis.compare.work import (
    is_another_program,
    scripts_apart,
    work_differences,
    work_facts,
)
from leakscope.analysis.holdings import join_retained
from leakscope.analysis.verdict.wording import listed
from leakscope.model.comparison import (
    ANOTHER_SCRIPT,
    NOTABLE_DIFFERENCE,
    ChangeKind,
    Comparison,
    CulpritChange,
    RankPair,
    RunCost,
    ValueChange,
    WorkerPair,
)
from leakscope.model.report import RankMemory, Report, RunVerdict, Severity, WorkerMemory
from leakscope.model.text import human_bytes

_ORDER = list(ChangeKind)


def compare(before: Report, after: Report) -> Comparison:
    """Return what changed from one run to the other."""
    is_other = is_another_program(before, after)
    pairs = pair(before, after)
    renamed = perhaps_renamed(pairs)
    changes = []
    for b, a in pairs:
        change = change_of(b, a, before, after)
        is_elsewhere = is_other and (a is None or b is None)
        changes.append(
            _only_in_other_script(change, after) if is_elsewhere else _renamed(change, renamed)
        )
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
    """Return a change with a sentence where the culprit may only have been renamed."""
    was = renamed.get(change.signature)
    if was is None or change.change is not ChangeKind.NEW or change.is_unproven:
        return change
    text = f"{change.text.removesuffix('.')}, as {name_of(was)} did; it may be the same, renamed."
    return msgspec.structs.replace(change, text=text)


def _only_in_other_script(change: CulpritChange, after: Report) -> CulpritChange:
    """Return the sentence on a culprit that only one of two scripts has: neither new nor fixed."""
    text = f"{change.name} was not seen in the other script, which did other work."
    if change.change is ChangeKind.NEW:
        text = only_in_one_script_text(change, PurePath(after.run.script).name)
    return msgspec.structs.replace(
        change, text=text, is_elsewhere=True, significant=False, doubt="", is_unproven=False
    )


def _cost(report: Report) -> RunCost:
    lines = report.timeline.lines if report.timeline else []
    readings = [y for _, y in lines[0].points if isfinite(y)] if lines else []
    return RunCost(
        work=report.work,
        peak_bytes=int(max(readings)) if readings else None,
        overhead=report.overhead,
        problems=len(report.errors),
    )


MOST_NAMES = 3
UNPROVEN = "Not proven"
FIRST_SEEN = "First seen"
_LABELS = {
    ChangeKind.NEW: "New",
    ChangeKind.WORSE: "Worse",
    ChangeKind.FIXED: "Fixed",
    ChangeKind.REDUCED: "Reduced",
    ChangeKind.UNCHANGED: "Unchanged",
}
"""In the order of the report."""


def verdict_in_words(
    changes: Sequence[CulpritChange], peaks: Sequence[ValueChange], before: Report, after: Report
) -> list[str]:
    """Return sentences on a change: the first is the verdict, the others add details.

    That memory ran out comes first, then what is new or worse. That another script ran comes at
    the end; at the beginning, where that one did other work.
    """
    grave = [change for change in changes if change.severity is not Severity.NOTE]
    sentences = [*_parts(grave), *_only_in_one_script(grave)] or [_no_serious_change(before, after)]
    if is_another_program(before, after):
        first, second = scripts_apart(before, after) or ("", "")
        other = f"{ANOTHER_SCRIPT}: {second} ran instead of {first} and did other work."
        return [other, *_ends(before, after), *sentences]
    is_settled = any(not change.is_unproven for change in grave)
    if is_settled and (peak := _peak_clause(grave, peaks, before)):
        # How the peak changed stands inside the verdict, if that is all there is.
        alone, last = sentences[0].removesuffix("."), f"{peak[0].upper()}{peak[1:]}."
        sentences = [f"{alone}; {peak}."] if len(sentences) == 1 else [*sentences, last]
    scripts = scripts_apart(before, after)
    script_notes = [f"The scripts differ: {scripts[0]}, then {scripts[1]}."] if scripts else []
    return [*_ends(before, after), *sentences, *script_notes]


def _parts(grave: Sequence[CulpritChange]) -> list[str]:
    """Return a sentence for each kind of change: on the first of that kind, and how many more."""
    return [
        _part(label, kind)
        for label in (*_LABELS.values(), FIRST_SEEN, UNPROVEN)
        if (kind := [c for c in grave if not c.is_elsewhere and _label(c) == label])
    ]


def _label(change: CulpritChange) -> str:
    if change.is_unproven:
        return FIRST_SEEN if change.change is ChangeKind.NEW else UNPROVEN
    return _LABELS[change.change]


def _part(label: str, changes: Sequence[CulpritChange]) -> str:
    more = len(changes) - 1
    others = f"; {more} more {'is' if more == 1 else 'are'} {label.lower()}" if more else ""
    return f"{label}: {changes[0].text.removesuffix('.')}{others}."


def _ends(before: Report, after: Report) -> list[str]:
    if before.out_of_memory is None:
        return ["The second run ran out of memory."] if after.out_of_memory else []
    if after.out_of_memory is None:
        return ["Memory no longer runs out."]
    return ["Both runs ran out of memory."]


def _only_in_one_script(changes: Sequence[CulpritChange]) -> list[str]:
    apart = [change for change in changes if change.is_elsewhere]
    own = [change for change in apart if change.change is ChangeKind.NEW]
    names = [change.name for change in apart if change.change is not ChangeKind.NEW]
    sentences = [_part("Only there", own)] if own else []
    if names:
        more = len(names) - MOST_NAMES
        shown = listed(names[:MOST_NAMES] + ([f"{more:,} more"] if more > 0 else []))
        sentences.append(f"Not seen there: {shown}; what was not done can't have been mended.")
    return sentences


def _no_serious_change(before: Report, after: Report) -> str:
    """Return that nothing was found, and which run doesn't tell enough for that to mean much."""
    named = (("first", before), ("second", after))
    which = [name for name, run in named if run.verdict is RunVerdict.INCONCLUSIVE]
    if len(which) == 2:
        return "No culprit in either run, but both are inconclusive."
    but = f", but the {which[0]} run is inconclusive" if which else ""
    return f"No culprit in either run{but}."


def _peak_clause(
    changes: Sequence[CulpritChange], peaks: Sequence[ValueChange], before: Report
) -> str:
    phases = {c.signature: c.phase for c in before.culprits}
    wanted = [phases.get(change.signature, "") for change in changes]
    ordered = sorted(peaks, key=lambda p: wanted.index(p.name) if p.name in wanted else len(wanted))
    for peak in ordered:
        first, last = peak.before_bytes, peak.after_bytes
        if first and last and abs(last / first - 1) >= NOTABLE_DIFFERENCE:
            verb = "fell" if last < first else "rose"
            on = "" if peak.device == "host" else f" on {peak.device}"
            sizes = f"from {human_bytes(first)} to {human_bytes(last)}"
            return f"peak memory{on} in {peak.name} {verb} {sizes}"
    return ""


def rank_pairs(before: Sequence[RankMemory], after: Sequence[RankMemory]) -> list[RankPair]:
    """Return the ranks of both runs by number; a run without ranks is left out of the others."""
    first = {rank.rank: rank for rank in before}
    second = {rank.rank: rank for rank in after}
    return [
        RankPair(rank=rank, before=first.get(rank), after=second.get(rank))
        for rank in sorted({**first, **second})
    ]


def worker_pairs(before: Sequence[WorkerMemory], after: Sequence[WorkerMemory]) -> list[WorkerPair]:
    """Return the workers of both runs by loader and number.

    A loader that restarts its workers has several processes in one place: the heaviest is reported.
    """
    first, second = _heaviest(before), _heaviest(after)
    return [
        WorkerPair(rank=k[0], loader=k[1], worker=k[2], before=first.get(k), after=second.get(k))
        for k in sorted({**first, **second})
    ]


def _heaviest(workers: Sequence[WorkerMemory]) -> dict[tuple[int, int, int], WorkerMemory]:
    found: dict[tuple[int, int, int], WorkerMemory] = {}
    for worker in sorted(workers, key=lambda w: -(w.pss_bytes or w.private_last_bytes or 0)):
        found.setdefault((worker.rank, worker.loader, worker.worker), worker)
    return found
