"""Two runs held side by side: what became of each culprit, and whether the work was the same.

Rates differ *significantly* when their intervals don't overlap and the change is worth a word
(5 %): bytes that grow by a fixed amount have intervals of no width.
"""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.analysis.comparing.counting import units_done
from leakscope.analysis.comparing.matching import Suspect, pair
from leakscope.analysis.comparing.work import work_differences
from leakscope.model.comparison import Change, Comparison, CulpritChange, ValueChange
from leakscope.model.report import Culprit, Growth, Report, RunVerdict, Severity
from leakscope.model.sizes import human_bytes

_WORTH_A_WORD = 0.05
_ORDER = [Change.FIXED, Change.REDUCED, Change.UNCHANGED, Change.WORSE, Change.NEW]
_GRAVITY = [Severity.NOTE, Severity.WARNING, Severity.CRITICAL]


def compare(before: Report, after: Report) -> Comparison:
    """Return what changed from one run to the other."""
    changes = [_change(b, a, before, after) for b, a in pair(before, after)]
    changes.sort(key=lambda c: (c.severity is Severity.NOTE, _ORDER.index(c.change)))
    peaks = _peaks(before, after)
    return Comparison(
        headline=_headline(changes, peaks, before, after),
        before=before.run,
        after=after.run,
        before_verdict=before.verdict,
        after_verdict=after.verdict,
        culprits=changes,
        growth=_growth(before.growth, after.growth),
        components=_components(before, after),
        peaks=peaks,
        work_differences=work_differences(before, after),
        before_timeline=before.timeline,
        after_timeline=after.timeline,
    )


def _change(
    before: Suspect | None, after: Suspect | None, first: Report, second: Report
) -> CulpritChange:
    known = before or after
    assert known is not None
    rate = _in_unit_of(before, after, second)
    change, significant = _judge(before, after, rate)
    text = _sentence(change, before, after, _absence_proves_nothing(before, second))
    return CulpritChange(
        change=change,
        name=name_of(after or known),
        path=getattr(after or known, "path", ""),
        signature=(after or known).signature,
        unit=known.unit,
        severity=_worst(before, after),
        before_bytes_per_unit=before.bytes_per_unit if before else None,
        before_interval=before.interval if before else None,
        after_bytes_per_unit=rate[0] if rate else None,
        after_interval=rate[1] if rate else None,
        significant=significant,
        text=text,
    )


def name_of(suspect: Suspect) -> str:
    """Return a culprit's name, or a finding's title."""
    return suspect.name if isinstance(suspect, Culprit) else suspect.title


def _in_unit_of(
    before: Suspect | None, after: Suspect | None, report: Report
) -> tuple[float, tuple[float, float]] | None:
    """Return the rate after, in the unit before; None where there is none or it can't be told."""
    if after is None:
        return None
    factor = 1.0
    if before is not None and before.unit != after.unit:
        own = units_done(report.work, after.unit, after.phase)
        wanted = units_done(report.work, before.unit, before.phase)
        if not own or not wanted:
            return None
        factor = own / wanted
    low, high = after.interval
    return after.bytes_per_unit * factor, (low * factor, high * factor)


def _judge(
    before: Suspect | None,
    after: Suspect | None,
    rate: tuple[float, tuple[float, float]] | None,
) -> tuple[Change, bool]:
    """Return what became of a culprit, and whether the difference of the rates is real."""
    if before is None:
        return Change.NEW, True
    if after is None:
        return Change.FIXED, before.interval[0] > 0
    if rate is None:
        return Change.UNCHANGED, False
    real = differs(before.bytes_per_unit, before.interval, *rate)
    if before.growth != after.growth:
        return _judge_shift(before, after), True
    if not real:
        return Change.UNCHANGED, False
    if rate[0] > before.bytes_per_unit:
        return Change.WORSE, True
    harmless = after.severity is Severity.NOTE and before.severity is not Severity.NOTE
    return (Change.FIXED if harmless else Change.REDUCED), True


def _judge_shift(before: Suspect, after: Suspect) -> Change:
    """What was kept for good may now be given back, or the other way round."""
    if after.growth == "within":
        return Change.FIXED if after.severity is Severity.NOTE else Change.REDUCED
    return Change.WORSE


def differs(
    before: float,
    before_interval: tuple[float, float],
    after: float,
    after_interval: tuple[float, float],
) -> bool:
    """Return whether two rates differ: their intervals don't overlap, by 5 % at least."""
    apart = before_interval[1] < after_interval[0] or after_interval[1] < before_interval[0]
    largest = max(abs(before), abs(after))
    return apart and abs(after - before) > _WORTH_A_WORD * largest


def _absence_proves_nothing(before: Suspect | None, after: Report) -> str:
    """Return why a culprit's absence from a run says little; empty where it says enough."""
    if before is None:
        return ""
    if after.verdict is RunVerdict.INCONCLUSIVE:
        return "the second run is inconclusive"
    if after.out_of_memory is not None:
        return "the second run ran out of memory"
    did = {phase.phase for phase in after.phases} | set(after.work.batches)
    if before.phase and did and before.phase not in did:
        return f"the second run had no phase {before.phase}"
    return ""


def _sentence(change: Change, before: Suspect | None, after: Suspect | None, doubt: str) -> str:
    if before is None and after is not None:
        return f"{name_of(after)} is new: it grows by {rate_text(after)}."
    assert before is not None
    was = f"was {rate_text(before)}"
    if after is None:
        if doubt:
            return f"{name_of(before)} was not seen again ({was}), but {doubt}."
        return f"{name_of(before)} no longer grows ({was})."
    moved = "" if name_of(before) == name_of(after) else f" (was called {name_of(before)})"
    now = f"{name_of(after)}{moved} "
    if change is Change.FIXED:
        return f"{now}grows by a harmless {rate_text(after)} ({was})."
    verb = {
        Change.REDUCED: "still grows, but more slowly: by",
        Change.UNCHANGED: "still grows by",
        Change.WORSE: "grows faster: by",
    }[change]
    return f"{now}{verb} {rate_text(after)} ({was})."


def rate_text(suspect: Suspect) -> str:
    """Return ``2.1 MB per validation``."""
    per = f" per {suspect.unit}" if suspect.unit else ""
    return f"{human_bytes(suspect.bytes_per_unit)}{per}"


def _worst(*suspects: Suspect | None) -> Severity:
    return max((s.severity for s in suspects if s is not None), key=_GRAVITY.index)


def _growth(before: Sequence[Growth], after: Sequence[Growth]) -> list[ValueChange]:
    first = {(g.metric, g.unit): g for g in before}
    second = {(g.metric, g.unit): g for g in after}
    return [_growth_change(first.get(key), second.get(key)) for key in {**first, **second}]


def _growth_change(before: Growth | None, after: Growth | None) -> ValueChange:
    known = before or after
    assert known is not None
    significant = None
    if before is not None and after is not None:
        significant = differs(
            before.bytes_per_unit, before.interval, after.bytes_per_unit, after.interval
        )
    return ValueChange(
        name=known.metric,
        device=_device(known.metric),
        unit=known.unit,
        before_bytes=before.bytes_per_unit if before else None,
        after_bytes=after.bytes_per_unit if after else None,
        significant=significant,
    )


def _components(before: Report, after: Report) -> list[ValueChange]:
    first = {(c.name, c.device): float(c.peak_bytes) for c in before.components}
    second = {(c.name, c.device): float(c.peak_bytes) for c in after.components}
    return _values(first, second)


def _peaks(before: Report, after: Report) -> list[ValueChange]:
    first = {(p.phase, _device(p.metric)): float(p.peak_bytes) for p in before.phases}
    second = {(p.phase, _device(p.metric)): float(p.peak_bytes) for p in after.phases}
    return _values(first, second)


def _values(
    before: dict[tuple[str, str], float], after: dict[tuple[str, str], float]
) -> list[ValueChange]:
    return [
        ValueChange(
            name=key[0],
            device=key[1],
            before_bytes=before.get(key),
            after_bytes=after.get(key),
        )
        for key in {**before, **after}
    ]


def _device(metric: str) -> str:
    return metric.rpartition(".")[0] or "host"


def _headline(
    changes: Sequence[CulpritChange], peaks: Sequence[ValueChange], before: Report, after: Report
) -> str:
    grave = [change for change in changes if change.severity is not Severity.NOTE]
    parts = [
        _headline_part(label, [c for c in grave if c.change is change])
        for change, label in (
            (Change.NEW, "New"),
            (Change.WORSE, "Worse"),
            (Change.FIXED, "Fixed"),
            (Change.REDUCED, "Reduced"),
            (Change.UNCHANGED, "Unchanged"),
        )
    ]
    told = [part for part in parts if part]
    ended = _ends(before, after)
    if not told:
        return ended + _nothing_grave(after)
    fell = _peak_clause(grave, peaks, before)
    return ended + " ".join(told).removesuffix(".") + (f"; {fell}." if fell else ".")


def _ends(before: Report, after: Report) -> str:
    """Return what became of a run that ended for want of memory."""
    if before.out_of_memory is None:
        return "The second run ran out of memory. " if after.out_of_memory else ""
    if after.out_of_memory is None:
        return "Memory no longer runs out. "
    return "Both runs ran out of memory. "


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
        if abs(peak.after_bytes / peak.before_bytes - 1) < _WORTH_A_WORD:
            continue
        verb = "fell" if peak.after_bytes < peak.before_bytes else "rose"
        on = "" if peak.device == "host" else f" on {peak.device}"
        return (
            f"peak memory{on} in {peak.name} {verb} "
            f"from {human_bytes(peak.before_bytes)} to {human_bytes(peak.after_bytes)}"
        )
    return ""
