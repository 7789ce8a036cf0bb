"""What changed between two runs, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.analysis.comparing.changes import WORTH_A_WORD
from leakscope.analysis.comparing.work import is_another_program, scripts_apart
from leakscope.model.comparison import ANOTHER_SCRIPT, Change, CulpritChange, ValueChange
from leakscope.model.report import Report, RunVerdict, Severity
from leakscope.model.sizes import human_bytes


def headline(
    changes: Sequence[CulpritChange], peaks: Sequence[ValueChange], before: Report, after: Report
) -> str:
    """Return the verdict on a change in a sentence or two: what is new or worse comes first.

    That another script ran is told beside it; before it, where that one did other work.
    """
    is_other = is_another_program(before, after)
    grave = [change for change in changes if change.severity is not Severity.NOTE]
    parts = [
        _headline_part(label, [c for c in grave if c.change is change and not c.is_elsewhere])
        for change, label in (
            (Change.NEW, "New"),
            (Change.WORSE, "Worse"),
            (Change.FIXED, "Fixed"),
            (Change.REDUCED, "Reduced"),
            (Change.UNCHANGED, "Unchanged"),
        )
    ]
    told = [part for part in [*parts, _elsewhere(grave)] if part]
    ended = _ends(before, after)
    if is_other:
        return f"{_another_script(before, after)} {ended}{' '.join(told) or _nothing_grave(after)}"
    scripts = scripts_apart(before, after)
    beside = f" The scripts differ: {scripts[0]}, then {scripts[1]}." if scripts else ""
    if not told:
        return ended + _nothing_grave(after) + beside
    fell = _peak_clause(grave, peaks, before)
    return ended + " ".join(told).removesuffix(".") + (f"; {fell}." if fell else ".") + beside


def _another_script(before: Report, after: Report) -> str:
    first, second = scripts_apart(before, after) or ("", "")
    return f"{ANOTHER_SCRIPT}: {second} ran instead of {first} and did other work."


def _ends(before: Report, after: Report) -> str:
    """Return what became of a run that ended for want of memory."""
    if before.out_of_memory is None:
        return "The second run ran out of memory. " if after.out_of_memory else ""
    if after.out_of_memory is None:
        return "Memory no longer runs out. "
    return "Both runs ran out of memory. "


def _elsewhere(changes: Sequence[CulpritChange]) -> str:
    names = [change.name for change in changes if change.is_elsewhere]
    return f"Not seen there: {', '.join(names)}." if names else ""


def _headline_part(label: str, changes: Sequence[CulpritChange]) -> str:
    if not changes:
        return ""
    first = changes[0]
    doubtful = label == "Fixed" and "was not seen again" in first.text
    more = len(changes) - 1
    others = f" And {more} more." if more else ""
    return f"{'Not seen again' if doubtful else label}: {first.text}{others}"


def _nothing_grave(after: Report) -> str:
    if after.verdict is RunVerdict.INCONCLUSIVE:
        return "No culprit in either run, but the second run is inconclusive."
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
