"""The baseline and the suppressions: what is known to grow, and which patterns excuse what.

An entry of the baseline is found again by its signature, else by its likeness.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from datetime import date
from fnmatch import fnmatchcase

import msgspec

from leakscope.analysis.compare.culprits import Likeness, Suspect, Traits, by_name, by_nature, match
from leakscope.analysis.compare.work import rate_in
from leakscope.analysis.processes.endings import ENDINGS
from leakscope.model.documents import Baseline, Checked, CheckReason, Key, Known, Suppression
from leakscope.model.report import Culprit, Report, RunVerdict, Work
from leakscope.model.text import human_bytes, human_share


def baseline_excuse(
    checked: Checked, known: Known, tolerance: float, work: Work
) -> tuple[bool, str]:
    """Return whether the baseline excuses what grows, and why or why not.

    It doesn't where it grows faster than the baseline's rate by more than the tolerance, and its
    interval lies above that rate as well: a rate that is known badly accuses nobody.
    """
    was = f"{human_bytes(known.bytes_per_unit)} per {known.unit}"
    rate = rate_in(checked.bytes_per_unit, checked.unit, checked.phase, known.unit, work)
    low = rate_in(checked.interval[0], checked.unit, checked.phase, known.unit, work)
    if rate is None or low is None:
        return True, f"The baseline has it ({was}); this run can't tell the rate per {known.unit}."
    if rate > known.bytes_per_unit * (1 + tolerance) and low > known.bytes_per_unit:
        now = f"{human_bytes(rate)} per {known.unit}"
        return False, (
            f"It got faster than the baseline allows: {now} instead of {was}, "
            f"more than {human_share(tolerance)} above."
        )
    how = "" if known.signature == checked.signature else " under another signature"
    return True, f"The baseline has it{how}, at {was}."


def no_longer_needed(
    baseline: Baseline, used: Collection[Key], report: Report
) -> tuple[list[Known], list[Known]]:
    """Return the entries that excuse nothing, and those of which this run can't say so."""
    unused = [known for known in baseline.culprits if known.key not in used]
    doubtful = [known for known in unused if _proves_nothing(known, report)]
    return [known for known in unused if known not in doubtful], doubtful


def new_baseline(
    growths: Iterable[Checked], previous: Baseline | None, unsettled: Iterable[Known]
) -> Baseline:
    """Return a baseline that excuses all that fails, ordered so that its history reads well.

    Reasons of the baseline until now stay, and so do rates that still hold and its entries that are
    ``unsettled``: the run can't say whether they are still needed.
    """
    before = {known.key: known for known in previous.culprits} if previous else {}
    entries = {known.key: known for known in unsettled}
    for checked in growths:
        if checked.standing is CheckReason.KNOWN and checked.known_key in before:
            entries[checked.key] = _renamed(before[checked.known_key], checked)
        elif checked.standing in (CheckReason.FAILED, CheckReason.KNOWN):
            entry = _remembered(checked, before.get(checked.known_key))
            twin = entries.get(checked.key)
            if twin is None or twin.bytes_per_unit < entry.bytes_per_unit:
                entries[checked.key] = entry
    ordered = sorted(entries.values(), key=lambda known: (known.name, known.key))
    return Baseline(culprits=ordered)


def _remembered(checked: Checked, before: Known | None) -> Known:
    rate = checked.bytes_per_unit
    return Known(
        name=checked.name,
        signature=checked.signature,
        growth=checked.growth,
        device=checked.device,
        phase=checked.phase,
        path=checked.path,
        kind=checked.kind,
        type=checked.type,
        # More than three digits would change with every run, and each change would be reviewed.
        bytes_per_unit=float(f"{rate:.3g}") if math.isfinite(rate) else 0.0,
        unit=checked.unit,
        in_workers=checked.in_workers,
        reason=before.reason if before else "",
    )


def _renamed(before: Known, checked: Checked) -> Known:
    """Return an entry that holds, by what it is recognised by now."""
    if checked.known_as:
        before = msgspec.structs.replace(
            before,
            name=checked.name,
            signature=checked.signature,
            phase=checked.phase,
            path=checked.path,
        )
    elif before.kind:
        return before
    return msgspec.structs.replace(before, kind=checked.kind, type=checked.type)


def _proves_nothing(known: Known, report: Report) -> bool:
    if report.verdict in (RunVerdict.INCONCLUSIVE, RunVerdict.OUT_OF_MEMORY):
        return True
    did = {phase.phase for phase in report.phases} | set(report.work.batches)
    return bool(known.phase and did and known.phase not in did)


def entries_of(growths: Sequence[Checked], baseline: Baseline) -> list[Known | None]:
    """Return what the baseline has of each; None where it has nothing.

    An entry of another signature excuses one thing at most, and only where it is free: nothing in
    the run has its own.
    """
    own = {known.key: known for known in reversed(baseline.culprits)}
    found = [own.get(checked.key) for checked in growths]
    here = {checked.key for checked in growths}
    failed = [n for n, g in enumerate(growths) if g.standing is CheckReason.FAILED]
    strangers = [n for n in failed if growths[n].kind not in ENDINGS and found[n] is None]
    free = [known for known in baseline.culprits if known.key not in here and known.kind]
    for in_workers in (False, True):
        left = [n for n in strangers if growths[n].in_workers is in_workers]
        right = [known for known in free if known.in_workers is in_workers]
        likenesses, mine = (_alike(by_name), _alike(by_nature)), [growths[n] for n in left]
        partners = match([*map(_traits_of, mine)], [*map(_traits_of, right)], likenesses)
        for index, partner in partners.items():
            found[left[index]] = right[partner]
    return found


def _alike(likeness: Likeness) -> Likeness:
    def of(traits: Traits) -> Hashable:
        found = likeness(traits)
        return found and (found, traits.growth, traits.is_finding and traits.name)

    return of


def _traits_of(checked: Checked | Known) -> Traits:
    return Traits(
        signature=checked.signature,
        name=checked.name,
        kind=checked.kind,
        type=checked.type,
        growth=checked.growth,
        device=checked.device,
        phase=checked.phase,
        is_finding=not checked.path,
    )


_ELSEWHERE = ("/", "..", "<")


def matches(pattern: str, texts: Iterable[str]) -> bool:
    """Return whether a pattern is one of the texts or matches one, as file names are matched.

    A name may hold ``[*]`` itself, so a name that is pasted as it stands matches too.
    """
    return any(text == pattern or fnmatchcase(text, pattern) for text in texts if text)


def names_of(suspect: Suspect) -> list[str]:
    """Return the names by which a pattern may match a culprit or a finding."""
    if isinstance(suspect, Culprit):
        return [rule_of(suspect), suspect.name, suspect.path, *suspect.also_named]
    return [rule_of(suspect), suspect.title]


def rule_of(suspect: Suspect) -> str:
    """Return the kind of diagnosis: for a culprit, how it grows and what it keeps."""
    if not isinstance(suspect, Culprit):
        return suspect.kind
    if suspect.graph_nodes:
        return "kept-graph"
    return "growing-within-phase" if suspect.growth == "within" else "growing-container"


def places_of(suspect: Suspect) -> list[str]:
    """Return the lines to look at, the project's own first: ``src/train.py:12``."""
    places = [*suspect.fed_at, suspect.defined_at or "", *suspect.allocated_at]
    known = dict.fromkeys(place for place in places if place)
    return sorted(known, key=lambda place: place.startswith(_ELSEWHERE))


def excuses(suppression: Suppression, suspect: Suspect) -> bool:
    """Return whether all that a suppression names is so of a culprit or a finding."""
    if suppression.signature and suppression.signature != suspect.signature:
        return False
    if suppression.pattern and not matches(suppression.pattern, names_of(suspect)):
        return False
    files = [place.rpartition(":")[0] or place for place in places_of(suspect)]
    if not suppression.path:
        return True
    # A project within a repository may be meant by its own paths or by the repository's.
    return matches(suppression.path, files) or matches(f"*/{suppression.path}", files)


def is_expired(suppression: Suppression, today: date) -> bool:
    """Return whether the last day on which it counts is over."""
    return suppression.expires is not None and suppression.expires < today


def remarks_on(
    suppressions: Iterable[Suppression],
    ignored: Iterable[str],
    suspects: Collection[Suspect],
    today: date,
) -> list[str]:
    """Return a sentence for each suppression that expired and each excuse that matches nothing."""
    remarks = []
    for suppression in suppressions:
        subject = f"The suppression of {subject_of(suppression)} ({suppression.reason})"
        if is_expired(suppression, today):
            remarks.append(f"{subject} expired on {suppression.expires} and no longer counts.")
        elif not any(excuses(suppression, suspect) for suspect in suspects):
            remarks.append(f"{subject} matches nothing in this run: {_mended(suppression)}.")
    idle = [p for p in ignored if not any(matches(p, names_of(suspect)) for suspect in suspects)]
    return remarks + [f"The ignored pattern {p} matches nothing in this run." for p in idle]


def _mended(suppression: Suppression) -> str:
    if not suppression.signature:
        return "remove it, or mend its pattern"
    return (
        "remove it, or give it a pattern. A signature changes with the names of variables and "
        "functions on the way to what grows"
    )


def subject_of(suppression: Suppression) -> str:
    """Return the target of a suppression, as its author wrote it."""
    return " in ".join(
        text for text in (suppression.pattern, suppression.signature, suppression.path) if text
    )
