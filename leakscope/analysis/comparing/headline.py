"""What changed between two runs: in a sentence, and what else is to be said of it."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.analysis.comparing.work import is_another_program, scripts_apart
from leakscope.analysis.wording import listed
from leakscope.model.comparison import (
    ANOTHER_SCRIPT,
    WORTH_A_WORD,
    Change,
    CulpritChange,
    ValueChange,
)
from leakscope.model.report import Report, RunVerdict, Severity
from leakscope.model.sizes import human_bytes

MOST_NAMES = 3
UNPROVEN = "Not seen again"
FIRST_SEEN = "First seen"
_LABELS = {
    Change.NEW: "New",
    Change.WORSE: "Worse",
    Change.FIXED: "Fixed",
    Change.REDUCED: "Reduced",
    Change.UNCHANGED: "Unchanged",
}
"""In the order in which they are told."""


def verdict_in_words(
    changes: Sequence[CulpritChange], peaks: Sequence[ValueChange], before: Report, after: Report
) -> list[str]:
    """Return sentences on a change: the first is the verdict, the others what else is to be said.

    That memory ran out comes first, then what is new or worse. That another script ran is told at
    the end; at the beginning, where that one did other work.
    """
    grave = [change for change in changes if change.severity is not Severity.NOTE]
    told = [*_parts(grave), *_elsewhere(grave)] or [_nothing_grave(before, after)]
    if is_another_program(before, after):
        return [_another_script(before, after), *_ends(before, after), *told]
    is_settled = any(not change.is_unproven for change in grave)
    if is_settled and (peak := _peak_clause(grave, peaks, before)):
        told = _with_peak(told, peak)
    scripts = scripts_apart(before, after)
    beside = [f"The scripts differ: {scripts[0]}, then {scripts[1]}."] if scripts else []
    return [*_ends(before, after), *told, *beside]


def _parts(grave: Sequence[CulpritChange]) -> list[str]:
    """Return a sentence for each kind of change: on the first of that kind, and how many more."""
    labels = [*_LABELS.values(), FIRST_SEEN, UNPROVEN]
    return [
        _part(label, kind)
        for label in labels
        if (kind := [c for c in grave if not c.is_elsewhere and _label(c) == label])
    ]


def _label(change: CulpritChange) -> str:
    if change.is_unproven:
        return FIRST_SEEN if change.change is Change.NEW else UNPROVEN
    return _LABELS[change.change]


def _part(label: str, changes: Sequence[CulpritChange]) -> str:
    more = len(changes) - 1
    others = f"; {more} more {'is' if more == 1 else 'are'} {label.lower()}" if more else ""
    return f"{label}: {changes[0].text.removesuffix('.')}{others}."


def _with_peak(told: list[str], peak: str) -> list[str]:
    """Return the sentences and how the peak changed: inside the verdict, if it is all there is."""
    if len(told) == 1:
        return [f"{told[0].removesuffix('.')}; {peak}."]
    return [*told, f"{peak[0].upper()}{peak[1:]}."]


def _another_script(before: Report, after: Report) -> str:
    first, second = scripts_apart(before, after) or ("", "")
    return f"{ANOTHER_SCRIPT}: {second} ran instead of {first} and did other work."


def _ends(before: Report, after: Report) -> list[str]:
    """Return what became of a run that ended for want of memory."""
    if before.out_of_memory is None:
        return ["The second run ran out of memory."] if after.out_of_memory else []
    if after.out_of_memory is None:
        return ["Memory no longer runs out."]
    return ["Both runs ran out of memory."]


def _elsewhere(changes: Sequence[CulpritChange]) -> list[str]:
    """Return what only one of two scripts has."""
    apart = [change for change in changes if change.is_elsewhere]
    own = [change for change in apart if change.change is Change.NEW]
    names = [change.name for change in apart if change.change is not Change.NEW]
    told = [_part("Only there", own)] if own else []
    if not names:
        return told
    more = len(names) - MOST_NAMES
    shown = names[:MOST_NAMES] + ([f"{more:,} more"] if more > 0 else [])
    return [
        *told,
        f"Not seen there: {listed(shown)}; what was not done can't have been mended.",
    ]


def _nothing_grave(before: Report, after: Report) -> str:
    """Return that nothing was found, and which run doesn't tell enough for that to mean much."""
    open_ones = [report.verdict is RunVerdict.INCONCLUSIVE for report in (before, after)]
    if all(open_ones):
        return "No culprit in either run, but both are inconclusive."
    if any(open_ones):
        which = "first" if open_ones[0] else "second"
        return f"No culprit in either run, but the {which} run is inconclusive."
    return "No culprit in either run."


def _peak_clause(
    changes: Sequence[CulpritChange], peaks: Sequence[ValueChange], before: Report
) -> str:
    """Return how the peak changed in the phase where most was fixed."""
    phases = {c.signature: c.phase for c in before.culprits}
    wanted = [phases.get(change.signature, "") for change in changes]
    ordered = sorted(peaks, key=lambda p: wanted.index(p.name) if p.name in wanted else len(wanted))
    for peak in ordered:
        if not peak.before_bytes or not peak.after_bytes:
            continue
        if abs(peak.after_bytes / peak.before_bytes - 1) < WORTH_A_WORD:
            continue
        verb = "fell" if peak.after_bytes < peak.before_bytes else "rose"
        on = "" if peak.device == "host" else f" on {peak.device}"
        return (
            f"peak memory{on} in {peak.name} {verb} "
            f"from {human_bytes(peak.before_bytes)} to {human_bytes(peak.after_bytes)}"
        )
    return ""
