"""The baseline: what is known to grow, when it grows faster, and what is no longer there."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import msgspec

from leakscope.analysis.comparing.counting import rate_in
from leakscope.model.check import Baseline, Checked, Key, Known, Standing
from leakscope.model.report import Report, RunVerdict, Work
from leakscope.model.sizes import human_bytes, human_share


def why_known(one: Checked, known: Known, tolerance: float, work: Work) -> tuple[bool, str]:
    """Return whether the baseline excuses what grows, and why or why not.

    It doesn't where it grows faster than the baseline's rate by more than the tolerance, and its
    interval lies above that rate as well: a rate that is known badly accuses nobody.
    """
    was = f"{human_bytes(known.bytes_per_unit)} per {known.unit}"
    rate = rate_in(one.bytes_per_unit, one.unit, one.phase, known.unit, work)
    low = rate_in(one.interval[0], one.unit, one.phase, known.unit, work)
    if rate is None or low is None:
        return True, f"The baseline has it ({was}); this run can't tell the rate per {known.unit}."
    if rate > known.bytes_per_unit * (1 + tolerance) and low > known.bytes_per_unit:
        now = f"{human_bytes(rate)} per {known.unit}"
        return False, (
            f"It got faster than the baseline allows: {now} instead of {was}, "
            f"more than {human_share(tolerance)} above."
        )
    how = "" if known.signature == one.signature else " under another signature"
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

    Args:
        growths: What grows, as the check judged it.
        previous: The baseline until now. Its reasons stay, and so do rates that still hold.
        unsettled: Its entries of which the run can't say whether they are still needed.

    """
    before = {known.key: known for known in previous.culprits} if previous else {}
    entries = {known.key: known for known in unsettled}
    for one in growths:
        if one.standing is Standing.KNOWN and one.known_key in before:
            entries[one.key] = _renamed(before[one.known_key], one)
        elif one.standing in (Standing.FAILED, Standing.KNOWN):
            entry, twin = _remembered(one, before.get(one.known_key)), entries.get(one.key)
            if twin is None or twin.bytes_per_unit < entry.bytes_per_unit:
                entries[one.key] = entry
    ordered = sorted(entries.values(), key=lambda known: (known.name, known.key))
    return Baseline(culprits=ordered)


def _remembered(one: Checked, before: Known | None) -> Known:
    return Known(
        name=one.name,
        signature=one.signature,
        growth=one.growth,
        device=one.device,
        phase=one.phase,
        path=one.path,
        kind=one.kind,
        type=one.type,
        bytes_per_unit=_rounded(one.bytes_per_unit),
        unit=one.unit,
        in_workers=one.in_workers,
        reason=before.reason if before else "",
    )


def _renamed(before: Known, one: Checked) -> Known:
    """Return an entry that holds, by what it is recognised by now."""
    if one.known_as:
        before = msgspec.structs.replace(
            before, name=one.name, signature=one.signature, phase=one.phase, path=one.path
        )
    elif before.kind:
        return before
    return msgspec.structs.replace(before, kind=one.kind, type=one.type)


def _rounded(rate: float) -> float:
    """Three digits: more would change with every run, and each change would be reviewed."""
    return float(f"{rate:.3g}") if math.isfinite(rate) else 0.0


def _proves_nothing(known: Known, report: Report) -> bool:
    """Return whether a culprit's absence from a run says little."""
    if report.verdict in (RunVerdict.INCONCLUSIVE, RunVerdict.OUT_OF_MEMORY):
        return True
    did = {phase.phase for phase in report.phases} | set(report.work.batches)
    return bool(known.phase and did and known.phase not in did)
