"""A run held against what is allowed: limit, suppressions, ignored patterns and a baseline."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import msgspec

from leakscope.analysis.compare.culprits import Suspect
from leakscope.analysis.compare.work import rate_in
from leakscope.analysis.gate.baseline import (
    baseline_excuse,
    entries_of,
    excuses,
    is_expired,
    matches,
    names_of,
    no_longer_needed,
    places_of,
    remarks_on,
    rule_of,
)
from leakscope.analysis.growth import policy
from leakscope.model.documents import (
    Baseline,
    Check,
    Checked,
    CheckReason,
    Known,
    Outcome,
    Suppression,
)
from leakscope.model.errors import LeakscopeError
from leakscope.model.report import Culprit, Report, RunVerdict, Severity
from leakscope.model.text import BYTES_IN, clipped, human_bytes

LONGEST_NAME = 160
_ORDER = list(CheckReason)


@dataclass(frozen=True)
class Allowed:
    """What a project allows."""

    today: date
    limit: GrowthLimit | None = None
    baseline: Baseline | None = None
    tolerance: float = policy.BASELINE_TOLERANCE
    ignored: Sequence[str] = ()
    suppressions: Sequence[Suppression] = ()
    remarks: Sequence[str] = field(default=())
    """What was found wrong with all this where it was read."""
    strict: bool = True
    """Whether an inconclusive run fails."""


def check(report: Report, allowed: Allowed) -> Check:
    """Return how everything that grows in a run stands, and whether the run passes."""
    suspects: list[Suspect] = [*report.culprits, *report.findings]
    growths = [_judged(suspect, report, allowed) for suspect in suspects]
    growths, together = _settled(growths, suspects, report, allowed)
    growths.sort(key=lambda growth: _ORDER.index(growth.standing))
    failed = [growth for growth in growths if growth.standing is CheckReason.FAILED]
    is_thin = report.verdict is RunVerdict.INCONCLUSIVE
    outcome = Outcome.INCONCLUSIVE if is_thin else Outcome.PASSED
    outcome = Outcome.FAILED if failed else outcome
    remarks = [*allowed.remarks]
    remarks += remarks_on(allowed.suppressions, allowed.ignored, suspects, allowed.today)
    return Check(
        outcome=outcome,
        passes=outcome is Outcome.PASSED
        or (outcome is Outcome.INCONCLUSIVE and not allowed.strict),
        headline=_headline(growths, outcome, together, strict=allowed.strict),
        verdict=report.verdict,
        run=report.run,
        growths=growths,
        gone=stale_baseline_entries(growths, report, allowed.baseline)[0],
        remarks=remarks,
        missing=list(report.missing),
        max_growth=allowed.limit.text if allowed.limit else "",
    )


def stale_baseline_entries(
    growths: Sequence[Checked], report: Report, baseline: Baseline | None
) -> tuple[list[Known], list[Known]]:
    """Return the baseline's entries that excuse nothing, and those that can't be judged."""
    if baseline is None:
        return [], []
    used = {
        growth.known_key
        for growth in growths
        if growth.standing in (CheckReason.KNOWN, CheckReason.FAILED)
    }
    return no_longer_needed(baseline, used, report)


def _judged(suspect: Suspect, report: Report, allowed: Allowed) -> Checked:
    """Return the outcome of something before the baseline is read: that is for what fails."""
    checked = _as_checked(suspect)
    over, sentence = _against_limit(suspect, checked, report, allowed.limit)
    if suspect.severity is Severity.NOTE and over is not True:
        return _with_standing(checked, CheckReason.NOTE, "A note never fails a check.")
    pattern = next((p for p in allowed.ignored if matches(p, names_of(suspect))), None)
    if pattern is not None:
        return _with_standing(checked, CheckReason.IGNORED, f"{pattern} is ignored.")
    for suppression in allowed.suppressions:
        if not is_expired(suppression, allowed.today) and excuses(suppression, suspect):
            until = f" until {suppression.expires}" if suppression.expires else ""
            return _with_standing(
                checked, CheckReason.SUPPRESSED, f"It is suppressed{until}.", suppression.reason
            )
    if over is False:
        return _with_standing(checked, CheckReason.ALLOWED, sentence)
    return _with_standing(checked, CheckReason.FAILED, sentence)


def _against_limit(
    suspect: Suspect, checked: Checked, report: Report, limit: GrowthLimit | None
) -> tuple[bool | None, str]:
    """Return whether something grows faster than the limit, None where that is unknown."""
    if limit is None:
        return None, ""
    if checked.growth != "across" or checked.bytes_per_unit <= 0:
        return None, "The limit speaks only of growth that stays."
    rate, low = _rates_by(limit, suspect, report)
    if rate is None or low is None:
        return None, f"This run can't tell how much that is per {limit.unit}."
    per = f"{human_bytes(rate)} per {limit.unit}"
    if rate <= limit.bytes_per_unit:
        return False, f"{per} is within {limit.text}."
    if suspect.severity is not Severity.NOTE:
        return True, f"{per} is more than {limit.text}."
    surely = isinstance(suspect, Culprit) and low > limit.bytes_per_unit
    return surely or None, f"{per} is more than {limit.text}."


def _rates_by(
    limit: GrowthLimit, suspect: Suspect, report: Report
) -> tuple[float | None, float | None]:
    """Return a rate and its least in the limit's unit; None where the run can't tell."""
    workers = max(suspect.workers, 1) if isinstance(suspect, Culprit) else 1
    rate, low = (
        rate_in(each * workers, suspect.unit, suspect.phase, limit.unit, report.work)
        for each in (suspect.bytes_per_unit, suspect.interval[0])
    )
    return rate, low


def _settled(
    growths: Sequence[Checked], suspects: Sequence[Suspect], report: Report, allowed: Allowed
) -> tuple[list[Checked], str]:
    """Return the outcome of all with the baseline, and a sentence if they fail only together.

    What is too much only together passes where the baseline has it, or enough of the others.
    """
    limit = allowed.limit
    alone = [n for n, g in enumerate(growths) if g.path and g.standing is CheckReason.ALLOWED]
    rates = {n: _rates_by(limit, suspects[n], report)[0] or 0.0 for n in alone if limit}
    groups = combined_excess(alone, growths, rates, limit)
    doubtful = frozenset[int]().union(*(group.members for group in groups))
    judged = [
        _with_standing(growth, CheckReason.FAILED, growth.why) if n in doubtful else growth
        for n, growth in enumerate(growths)
    ]
    settled = _against_baseline(judged, report, allowed)
    left = sorted(n for n in doubtful if settled[n].standing is CheckReason.FAILED)
    for n in left:
        settled[n] = growths[n]
    groups = combined_excess(left, settled, rates, limit)
    is_all = all(growth.standing is not CheckReason.FAILED for growth in settled)
    for group in groups:
        for n in group.members:
            why = f"{growths[n].why} But {group.sentence}."
            settled[n] = _with_standing(settled[n], CheckReason.FAILED, why)
    return settled, groups[0].sentence if groups and is_all else ""


def _against_baseline(
    growths: Sequence[Checked], report: Report, allowed: Allowed
) -> list[Checked]:
    """Return all of them; what failed until now and is known no longer does."""
    if allowed.baseline is None:
        return [_as_unknown(growth, "Nothing allows it.") for growth in growths]
    return [
        _as_unknown(growth, "The baseline doesn't have it.")
        if known is None or growth.standing is not CheckReason.FAILED
        else _judge_known(growth, known, report, allowed)
        for growth, known in zip(growths, entries_of(growths, allowed.baseline), strict=True)
    ]


def _as_unknown(checked: Checked, why: str) -> Checked:
    return _with_standing(checked, checked.standing, checked.why or why, checked.excuse)


def _judge_known(checked: Checked, known: Known, report: Report, allowed: Allowed) -> Checked:
    if known.signature != checked.signature:
        checked = msgspec.structs.replace(checked, known_as=known.signature)
    excused, why = baseline_excuse(checked, known, allowed.tolerance, report.work)
    return _with_standing(
        checked, CheckReason.KNOWN if excused else CheckReason.FAILED, why, known.reason
    )


def _with_standing(checked: Checked, standing: CheckReason, why: str, excuse: str = "") -> Checked:
    return msgspec.structs.replace(checked, standing=standing, why=why, excuse=excuse)


def _as_checked(suspect: Suspect) -> Checked:
    places = places_of(suspect)
    return Checked(
        standing=CheckReason.FAILED,
        why="",
        rule=rule_of(suspect),
        name=suspect.name if isinstance(suspect, Culprit) else suspect.title,
        sentence=suspect.sentence if isinstance(suspect, Culprit) else suspect.text,
        severity=suspect.severity,
        signature=suspect.signature,
        growth=suspect.growth,
        device=suspect.device,
        phase=suspect.phase,
        path=suspect.path if isinstance(suspect, Culprit) else "",
        kind=suspect.kind,
        type=suspect.type if isinstance(suspect, Culprit) else "",
        bytes_per_unit=suspect.bytes_per_unit,
        interval=suspect.interval,
        unit=suspect.unit,
        place=places[0] if places else "",
        places=places,
        remedy=suspect.remedy.title,
        in_workers=isinstance(suspect, Culprit) and suspect.workers > 0,
        recognised=suspect.known,
    )


def _headline(growths: Sequence[Checked], outcome: Outcome, together: str, *, strict: bool) -> str:
    if together:
        return f"Not allowed: {together}."
    failed = [growth for growth in growths if growth.standing is CheckReason.FAILED]
    if failed:
        more = f" And {len(failed) - 1} more." if len(failed) > 1 else ""
        return f"Not allowed: {_describe_checked(failed[0])}.{more}"
    if outcome is Outcome.INCONCLUSIVE:
        if strict:
            return "The run is inconclusive, which shows nothing: --no-strict lets it pass."
        return "The run is inconclusive and passes, as --no-strict has it."
    counted = [(s.value, sum(growth.standing is s for growth in growths)) for s in _ORDER]
    excused = [f"{count} {name}" for name, count in counted if count and name != "note"]
    return "Nothing grows that isn't allowed" + (f" ({', '.join(excused)})." if excused else ".")


def _describe_checked(checked: Checked) -> str:
    """Return what grows by how much and where; a finding's title is no name that could grow."""
    name = clipped(checked.name, LONGEST_NAME)
    has_rate = checked.bytes_per_unit > 0 and bool(checked.unit)
    rate = f"{human_bytes(checked.bytes_per_unit)} per {checked.unit}" if has_rate else ""
    if checked.path:
        place = f" ({checked.place})" if checked.place else ""
        return f"{name}{f' grows by {rate}' if rate else ''}{place}"
    details = ", ".join(part for part in (rate, checked.place) if part)
    return f"{name} ({details})" if details else name


_UNITS = ("step", "validation", "epoch", "minute", "hour")
_LIMIT = re.compile(
    r"(?P<size>\d+(?:\.\d*)?|\.\d+)\s*(?P<bytes>[kmgt]?i?b)\s*(?:/|\bper\b)\s*"
    r"(?:(?P<count>\d+)\s*)?(?P<unit>[a-z]+)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class GrowthLimit:
    """So many bytes per unit of work are allowed."""

    bytes_per_unit: float
    unit: str
    text: str
    """As the user wrote it."""


def to_growth_limit(text: str) -> GrowthLimit:
    """Return the limit in a text such as ``1 MB/epoch`` or ``64 KiB per 100 steps``.

    Raises:
        LeakscopeError: it is none.

    """
    found = _LIMIT.fullmatch(text.strip())
    unit = found["unit"].lower() if found else ""
    unit = unit if unit in _UNITS else unit.removesuffix("s")
    if found is not None and unit in _UNITS and found["bytes"].lower() in BYTES_IN:
        size = float(found["size"]) * BYTES_IN[found["bytes"].lower()]
        count = float(found["count"] or 1)
        if math.isfinite(size) and math.isfinite(count) and count:
            return GrowthLimit(size / count, unit, text.strip())
    raise LeakscopeError(
        f"{text!r} is no rate of growth; write a size and a unit of work, such as 1 MB/epoch or "
        f"64 KiB/step (units of work: {', '.join(_UNITS)}).",
        slug="bad-limit",
    )


@dataclass(frozen=True)
class CombinedExcess:
    """Culprits on one device that come to more than the limit, though each of them is within it."""

    members: frozenset[int]
    """By their index."""
    rate: float
    limit: GrowthLimit
    device: str

    @property
    def sentence(self) -> str:
        """How much they grow together."""
        where = "" if self.device == "host" else f" on {self.device}"
        return (
            f"{len(self.members)} culprits{where} that are each within {self.limit.text} grow by "
            f"{human_bytes(self.rate)} per {self.limit.unit} together"
        )


def combined_excess(
    members: Iterable[int],
    growths: Sequence[Checked],
    rates: Mapping[int, float],
    limit: GrowthLimit | None,
) -> list[CombinedExcess]:
    """Return which of these culprits come to more than the limit, by device."""
    if limit is None:
        return []
    by_device: dict[str, list[int]] = {}
    for n in members:
        by_device.setdefault(growths[n].device, []).append(n)
    return [
        CombinedExcess(frozenset(found), rate, limit, device)
        for device, found in by_device.items()
        if (rate := sum(rates[n] for n in found)) > limit.bytes_per_unit
    ]
