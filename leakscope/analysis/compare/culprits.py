"""Which culprit of one run is which of another, and what became of each.

Rates differ *significantly* when their intervals don't overlap and they differ by more than 5 %.
The signature decides who is who; where a function was renamed or a line moved, name or nature does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from leakscope.analysis.compare.work import by_step, units_done
from leakscope.analysis.growth import policy
from leakscope.analysis.processes.endings import ENDINGS
from leakscope.model import gauge
from leakscope.model.comparison import NOTABLE_DIFFERENCE, ChangeKind, CulpritChange, ValueChange
from leakscope.model.report import (
    Cleared,
    Culprit,
    Finding,
    MetricGrowth,
    Point,
    Report,
    RunVerdict,
    Severity,
)
from leakscope.model.text import human_bytes, plural

SECONDS = "s"
_COUNTED = frozenset({"step", "batch", "validation", "epoch"})
_POOLS = frozenset({gauge.RSS, gauge.PSS})
_GRAVITY = [Severity.NOTE, Severity.WARNING, Severity.CRITICAL]


def change_of(
    before: Suspect | None, after: Suspect | None, first: Report, second: Report
) -> CulpritChange:
    """Return what became of a culprit that at least one of the runs has."""
    known = after or before
    assert known is not None
    rate = _in_unit_of(before, after, second)
    change, significant = _judge(before, after, rate)
    unproven = _unproven(before, after, first, second)
    doubt = unproven or _doubt(before, after, rate, significant)
    charts, unit = _charts(before, after, first, second)
    lines = [*known.fed_at, known.defined_at or "", *known.allocated_at]
    return CulpritChange(
        change=change,
        name=name_of(known),
        path=getattr(known, "path", ""),
        signature=known.signature,
        unit=(before or known).unit,
        severity=max((s.severity for s in (before, after) if s is not None), key=_GRAVITY.index),
        before_bytes_per_unit=before.bytes_per_unit if before else None,
        before_interval=before.interval if before else None,
        after_bytes_per_unit=rate[0] if rate else None,
        after_interval=rate[1] if rate else None,
        significant=significant,
        text=_sentence(change, before, after, unproven, second),
        doubt=doubt,
        is_unproven=bool(unproven),
        place=next(filter(None, lines), ""),
        growth=known.growth,
        phase=known.phase,
        device=known.device,
        before_total_bytes=before.total_bytes if before else None,
        after_total_bytes=after.total_bytes if after else None,
        before_chart=charts[0],
        after_chart=charts[1],
        chart_unit=unit,
        before_workers=getattr(before, "workers", 0),
        after_workers=getattr(after, "workers", 0),
        before_rates_by_rank=getattr(before, "rates_by_rank", {}),
        after_rates_by_rank=getattr(after, "rates_by_rank", {}),
        known=known.known,
    )


def _charts(
    before: Suspect | None, after: Suspect | None, first: Report, second: Report
) -> tuple[tuple[list[Point], list[Point]], str]:
    """Return the series of both runs over one axis; that of a lone one where they share none."""
    left, unit = _chart(before, first)
    right, other = _chart(after, second)
    if left and right and unit != other:
        return (left, []), unit
    return (left, right), unit if left else other


def _chart(suspect: Suspect | None, report: Report) -> tuple[list[Point], str]:
    """Return a culprit's series, by step where its axis was the clock."""
    if not isinstance(suspect, Culprit) or not suspect.chart:
        return [], ""
    clock = report.timeline.steps if report.timeline else []
    if suspect.chart_unit != SECONDS or not clock:
        return suspect.chart, suspect.chart_unit
    steps = by_step([point.x for point in suspect.chart], clock)
    moved = zip(steps, suspect.chart, strict=True)
    return [Point(step, point.y, point.boundary) for step, point in moved], "step"


def name_of(suspect: Suspect) -> str:
    """Return a culprit's name, or a finding's title."""
    return suspect.name if isinstance(suspect, Culprit) else suspect.title


def _in_unit_of(
    before: Suspect | None, after: Suspect | None, report: Report
) -> tuple[float, tuple[float, float]] | None:
    """Return the rate after, in the unit before; None where there is none or it is unknown."""
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
) -> tuple[ChangeKind, bool]:
    """Return what became of a culprit, and whether the difference of the rates is real."""
    if before is None:
        return ChangeKind.NEW, True
    if after is None:
        return ChangeKind.FIXED, before.interval[0] > 0
    if rate is None:
        return ChangeKind.UNCHANGED, False
    real = differs(before.bytes_per_unit, before.interval, *rate)
    harmless = after.severity is Severity.NOTE
    if before.growth != after.growth:
        # What was kept for good is now released, or the other way round.
        released = ChangeKind.FIXED if harmless else ChangeKind.REDUCED
        return (released if after.growth == "within" else ChangeKind.WORSE), True
    if not real:
        return ChangeKind.UNCHANGED, False
    if rate[0] > before.bytes_per_unit:
        return ChangeKind.WORSE, True
    is_mended = harmless and before.severity is not Severity.NOTE
    return (ChangeKind.FIXED if is_mended else ChangeKind.REDUCED), True


def differs(
    before: float,
    before_interval: tuple[float, float],
    after: float,
    after_interval: tuple[float, float],
) -> bool:
    """Return whether two rates differ: no overlap of their intervals, and more than 5 %."""
    apart = before_interval[1] < after_interval[0] or after_interval[1] < before_interval[0]
    largest = max(abs(before), abs(after))
    return apart and abs(after - before) > NOTABLE_DIFFERENCE * largest


def _unproven(before: Suspect | None, after: Suspect | None, first: Report, second: Report) -> str:
    """Return why a culprit's absence from one of the runs says little; empty where it says enough.

    What grows in a run that ran out of memory has been seen in it, as long as it lasted.
    """
    if after is None and before is not None:
        if second.out_of_memory is not None and second.verdict is not RunVerdict.INCONCLUSIVE:
            return "the second run ran out of memory"
        cleared = _cleared_in(before, second)
        if cleared is not None and cleared.kind == "bounded":  # also of an inconclusive run
            filling = "the second run ended before it was full, and it grew until then"
            return filling if cleared.is_filling else ""
        return _proves_nothing(before, first, second, "second")
    if before is None and after is not None:
        return _proves_nothing(after, second, first, "first")
    return ""


def _proves_nothing(suspect: Suspect, seen_in: Report, run: Report, which: str) -> str:
    """Return why a run says little about what was seen in the other one."""
    if run.verdict is RunVerdict.INCONCLUSIVE:
        return f"the {which} run is inconclusive"
    named = isinstance(suspect, Culprit) and seen_in.overhead.censuses > 0
    if named and not run.overhead.censuses:
        return f"nothing in the {which} run was looked at by name"
    if thin := _too_short(suspect, seen_in, run):
        return f"the {which} run {thin}"
    did = {phase.phase for phase in run.phases} | set(run.work.batches)
    # Those that workers of loaders and pools pass through are not listed.
    is_elsewhere = isinstance(suspect, Culprit) and bool(suspect.workers or suspect.process)
    if suspect.phase and did and suspect.phase not in did and not is_elsewhere:
        return f"the {which} run had no phase {suspect.phase}"
    return ""


def _too_short(suspect: Suspect, seen_in: Report, run: Report) -> str:
    """Return how a run was too short to show what the other did; empty where it wasn't."""
    looks = seen_in.overhead.censuses, run.overhead.censuses
    enough = 2 * policy.FEWEST_GROWING  # some lie at begin and end
    seldom = isinstance(suspect, Culprit) and looks[1] < enough <= looks[0]
    if seldom and not _leaves_no_room(suspect, seen_in, run):
        return f"was looked at only {plural(looks[1], 'time')}"
    there, here = (units_done(r.work, suspect.unit, suspect.phase) for r in (seen_in, run))
    if suspect.unit in _COUNTED and 0 < here < policy.FEWEST_GROWING <= there:
        return f"did only {plural(here, suspect.unit)}"
    return ""


def _leaves_no_room(suspect: Suspect, seen_in: Report, run: Report) -> bool:
    """Return whether all memory of a clean run grew by less than a suspect did in the other one.

    Then a growth as fast would have shown in the process, however seldom its heap was looked at.
    """
    is_kept = suspect.growth == "across" and suspect.device == "host"
    is_as_long = run.work.duration_s >= seen_in.work.duration_s / 2
    if run.verdict is not RunVerdict.CLEAN or not is_kept or not is_as_long:
        return False
    pools = [g for g in run.growth if g.metric in _POOLS and g.unit == suspect.unit]
    return bool(pools) and all(g.interval[1] < suspect.interval[0] for g in pools)


def _doubt(
    before: Suspect | None,
    after: Suspect | None,
    rate: tuple[float, tuple[float, float]] | None,
    significant: bool,
) -> str:
    """Return why it is uncertain what became of a culprit; empty where it is certain."""
    if before is None or significant:
        return ""
    if after is None:
        lowest = human_bytes(before.interval[0])
        return f"its rate in the first run may have been {lowest} per {before.unit}"
    if rate is None:
        return f"rates per {before.unit} and per {after.unit} can't be held against each other"
    if abs(rate[0] - before.bytes_per_unit) <= NOTABLE_DIFFERENCE * abs(before.bytes_per_unit):
        return ""
    return (
        f"the intervals of both rates overlap: {_between(before.interval)} in the first run, "
        f"{_between(rate[1])} in the second"
    )


def _between(interval: tuple[float, float]) -> str:
    return f"{human_bytes(interval[0])} to {human_bytes(interval[1])}"


def _sentence(
    change: ChangeKind,
    before: Suspect | None,
    after: Suspect | None,
    unproven: str,
    second: Report,
) -> str:
    if before is None and after is not None:
        return _new(after, unproven)
    assert before is not None
    was = f" (was {rate_text(before)})" if _has_rate(before) else ""
    if after is None:
        cleared = _cleared_in(before, second)
        if unproven:
            grows = "has a bound now" if cleared and cleared.is_filling else "no longer grows"
            seen = grows if cleared else "was not seen again"
            return f"{_called(before)} {seen}{was}, but {unproven}."
        gone = "no longer grows" if isinstance(before, Culprit) else "is gone"
        found_fine = f"; now {cleared.reason}" if cleared else ""
        return f"{_called(before)} {gone}{was}{found_fine}."
    moved = "" if name_of(before) == name_of(after) else f" (was called {name_of(before)})"
    now = f": {rate_text(after)}" if _has_rate(after) else ""
    if was and rate_text(before) == rate_text(after):
        was = ", as before"
    if isinstance(after, Culprit):
        return f"{_called(after)}{moved} {_GROWS[change]} {rate_text(after)}{was}."
    return f"{_called(after)} {_FINDING_CHANGES[change]}{now}{was}."


_GROWS = {
    ChangeKind.FIXED: "grows by a harmless",
    ChangeKind.REDUCED: "still grows, but more slowly: by",
    ChangeKind.UNCHANGED: "still grows by",
    ChangeKind.WORSE: "grows faster: by",
}
_FINDING_CHANGES = {
    ChangeKind.FIXED: "does no harm any more",
    ChangeKind.REDUCED: "is less than it was",
    ChangeKind.UNCHANGED: "is still so",
    ChangeKind.WORSE: "is more than it was",
}
"""Words for findings: their titles are sentences or parts of them, which can't grow."""


def _new(suspect: Suspect, unproven: str) -> str:
    name, rate, is_culprit = _called(suspect), rate_text(suspect), isinstance(suspect, Culprit)
    of_finding = f": {rate}" if _has_rate(suspect) else ""
    if unproven:
        how = f" grows by {rate}" if is_culprit else of_finding or " is found"
        return f"{name}{how}; it was not seen before, but {unproven}."
    return f"{name} is new{f': it grows by {rate}' if is_culprit else of_finding}."


def only_in_one_script_text(suspect: CulpritChange, script: str) -> str:
    """Return the sentence on a culprit that only another script has, one that did other work."""
    rate, unit = suspect.after_bytes_per_unit or 0.0, suspect.unit
    grows = f" and grows by {human_bytes(rate)} per {unit}" if rate and unit else ""
    return f"{suspect.name} is {script}'s own{grows}."


def _called(suspect: Suspect) -> str:
    """Return what stands first in a sentence on a culprit or, in quotes, a finding."""
    name = name_of(suspect)
    return name if isinstance(suspect, Culprit) else f'"{name}"'


def _has_rate(suspect: Suspect) -> bool:
    return isinstance(suspect, Culprit) or suspect.bytes_per_unit > 0


def _cleared_in(suspect: Suspect, report: Report) -> Cleared | None:
    """Return the entry of the same container, which may have another type: a deque for a list."""
    known = [c for c in report.cleared if c.signature and c.signature == suspect.signature]
    if not known and isinstance(suspect, Culprit):
        known = [c for c in report.cleared if (c.name, c.path) == (suspect.name, suspect.path)]
    return next(iter(known), None)


def rate_text(suspect: Suspect) -> str:
    """Return ``2.1 MB per validation``."""
    per = f" per {suspect.unit}" if suspect.unit else ""
    return f"{human_bytes(suspect.bytes_per_unit)}{per}"


Suspect = Culprit | Finding


@dataclass(frozen=True)
class Traits:
    """What a culprit or a finding is recognised by, whichever run or file it stands in."""

    signature: str
    name: str
    """A finding's title."""
    kind: str
    type: str
    growth: str
    device: str
    phase: str
    is_finding: bool


Likeness = Callable[[Traits], Hashable]
"""What two that are the same have in common; None where they can't be recognised by it."""


Pairs = list[tuple[Suspect | None, Suspect | None]]


def pair(before: Report, after: Report) -> Pairs:
    """Return every culprit and finding of both runs, each at most once, matched where it can be."""
    left, right = _suspects(before), _suspects(after)
    likenesses = (by_signature, by_name, by_nature)
    partners = match([*map(traits_of, left)], [*map(traits_of, right)], likenesses)
    pairs: Pairs = [
        (suspect, right[partners[index]] if index in partners else None)
        for index, suspect in enumerate(left)
    ]
    taken = set(partners.values())
    pairs += [(None, suspect) for index, suspect in enumerate(right) if index not in taken]
    return pairs


def perhaps_renamed(pairs: Pairs) -> dict[str, Suspect]:
    """Return which culprit of the first run each new one of the second may be, by signature.

    That is what grew just as fast in the same place or under the same last name, and no more. What
    could be two things is left out, and so are notes: floats are gathered everywhere alike.
    """
    gone = [b for b, a in pairs if b is not None and a is None and _is_no_note(b)]
    come = [a for b, a in pairs if a is not None and b is None and _is_no_note(a)]
    alike = [(b, a) for b in gone for a in come if _grow_alike(b, a)]
    befores = Counter(before.signature for before, _ in alike)
    afters = Counter(after.signature for _, after in alike)
    return {a.signature: b for b, a in alike if befores[b.signature] == afters[a.signature] == 1}


def match(
    left: Sequence[Traits], right: Sequence[Traits], likenesses: Iterable[Likeness]
) -> dict[int, int]:
    """Return the pairs of indices that belong together; each index occurs at most once.

    The first likeness decides, then the next for what is left. Of several that are alike the
    earlier ones go together.
    """
    partners: dict[int, int] = {}
    for key in likenesses:
        taken = set(partners.values())
        free: dict[Hashable, list[int]] = {}
        for index, traits in enumerate(right):
            if index not in taken and key(traits) is not None:
                free.setdefault(key(traits), []).append(index)
        for index, traits in enumerate(left):
            candidates = free.get(key(traits), [])
            if index not in partners and candidates:
                partners[index] = candidates.pop(0)
    return partners


def traits_of(suspect: Suspect) -> Traits:
    """Return what a culprit or a finding is recognised by."""
    return Traits(
        signature=suspect.signature,
        name=name_of(suspect),
        kind=suspect.kind,
        type="" if isinstance(suspect, Finding) else suspect.type,
        growth=suspect.growth,
        device=suspect.device,
        phase=suspect.phase,
        is_finding=isinstance(suspect, Finding),
    )


def by_signature(traits: Traits) -> Hashable:
    """Return what is the same while nothing on the way from the root was renamed."""
    return (traits.signature, traits.growth, traits.device) if traits.signature else None


def by_name(traits: Traits) -> Hashable:
    """Return what is the same while it is called the same; of a finding, its kind."""
    if traits.is_finding:
        return ("finding", traits.kind, traits.phase, traits.device)
    return (traits.name, traits.kind, traits.device)


def by_nature(traits: Traits) -> Hashable:
    """Return what is the same under the same last name in the same class."""
    if traits.is_finding:
        return None
    *owners, last = traits.name.split(".")
    owner_class = next((part for part in owners if part[:1].isupper()), "")
    return (traits.type, traits.kind, last, owner_class, traits.device)


def _is_no_note(suspect: Suspect) -> bool:
    return isinstance(suspect, Culprit) and suspect.severity is not Severity.NOTE


def _grow_alike(earlier: Suspect, later: Suspect) -> bool:
    """Return whether two grow as fast, in the same place or under the same last name."""
    first, second = traits_of(earlier), traits_of(later)
    kinds = [(t.kind, t.type, t.growth, t.device, t.phase) for t in (first, second)]
    if kinds[0] != kinds[1] or earlier.unit != later.unit:
        return False
    # ``Trainer.run.all_boxes`` belongs to ``Trainer.run``, and ``all_boxes`` is its last name.
    owner, _, last = first.name.rpartition(".")
    other_owner, _, other_last = second.name.rpartition(".")
    least = NOTABLE_DIFFERENCE * max(abs(earlier.bytes_per_unit), abs(later.bytes_per_unit))
    are_alike = abs(earlier.bytes_per_unit - later.bytes_per_unit) <= least
    return are_alike and (owner == other_owner or last == other_last)


def _suspects(report: Report) -> list[Suspect]:
    return [*report.culprits, *(f for f in report.findings if f.kind not in ENDINGS)]


def growth_changes(
    before: Sequence[MetricGrowth], after: Sequence[MetricGrowth]
) -> list[ValueChange]:
    """Return how fast each gauge grew, and whether the difference is real."""
    first = {(g.metric, g.unit): g for g in before}
    second = {(g.metric, g.unit): g for g in after}
    changes = []
    for metric, unit in {**first, **second}:
        was, is_now = first.get((metric, unit)), second.get((metric, unit))
        significant = None
        if was is not None and is_now is not None:
            rates = (was.bytes_per_unit, was.interval, is_now.bytes_per_unit, is_now.interval)
            significant = differs(*rates)
        changes.append(
            ValueChange(
                name=metric,
                device=_device(metric),
                unit=unit,
                before_bytes=was.bytes_per_unit if was else None,
                after_bytes=is_now.bytes_per_unit if is_now else None,
                before_interval=was.interval if was else None,
                after_interval=is_now.interval if is_now else None,
                significant=significant,
            )
        )
    return changes


def component_changes(before: Report, after: Report) -> list[ValueChange]:
    """Return the peak of each component on each device."""
    first = {(c.name, c.device): float(c.peak_bytes) for c in before.components}
    second = {(c.name, c.device): float(c.peak_bytes) for c in after.components}
    return _values(first, second)


def peak_changes(before: Report, after: Report) -> list[ValueChange]:
    """Return the peak of each phase on each device: the highest of all its occurrences.

    Where memory grows, it is the last that no longer fits. Where one of the two reports, an older
    one, doesn't tell the highest, medians are compared.
    """
    has_most = all(p.most_bytes is not None for p in (*before.phases, *after.phases))
    first, second = (
        {
            (p.phase, _device(p.metric)): float((p.most_bytes or 0) if has_most else p.peak_bytes)
            for p in report.phases
        }
        for report in (before, after)
    )
    return _values(first, second)


def _values(
    before: dict[tuple[str, str], float], after: dict[tuple[str, str], float]
) -> list[ValueChange]:
    return [
        ValueChange(name=k[0], device=k[1], before_bytes=before.get(k), after_bytes=after.get(k))
        for k in {**before, **after}
    ]


def _device(metric: str) -> str:
    return metric.rpartition(".")[0] or "host"
