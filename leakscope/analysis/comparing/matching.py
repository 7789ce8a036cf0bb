"""Which culprit of one run is which culprit of another.

The signature decides; where a function was renamed or a line moved, the same name does, or the
same kind of thing under the same last name in the same class. What grows just as fast in the same
place under another name may be the same, and is told to be no more than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from leakscope.analysis.ending import ENDINGS
from leakscope.model.comparison import WORTH_A_WORD
from leakscope.model.report import Culprit, Finding, Report, Severity

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
    """Return of what only the second run has, by its signature, what of the first it may be.

    That is what grew just as fast in the same place or under the same last name, and no more. What
    could be two things is left out, and so are notes: floats are gathered everywhere alike.
    """
    gone = [one for one, other in pairs if one is not None and other is None and _is_telling(one)]
    come = [other for one, other in pairs if other is not None and one is None]
    alike = [(b, a) for b in gone for a in come if _is_telling(a) and _grow_alike(b, a)]
    befores = Counter(before.signature for before, _ in alike)
    afters = Counter(after.signature for _, after in alike)
    return {a.signature: b for b, a in alike if befores[b.signature] == afters[a.signature] == 1}


def match(
    left: Sequence[Traits], right: Sequence[Traits], likenesses: Iterable[Likeness]
) -> dict[int, int]:
    """Return who is who, by index and each at most once.

    The first likeness decides, then the next for what is left. Of several that are alike the
    earlier ones go together.
    """
    partners: dict[int, int] = {}
    for key in likenesses:
        taken = set(partners.values())
        free: dict[Hashable, list[int]] = {}
        for index, one in enumerate(right):
            if index not in taken and key(one) is not None:
                free.setdefault(key(one), []).append(index)
        for index, one in enumerate(left):
            candidates = free.get(key(one), [])
            if index not in partners and candidates:
                partners[index] = candidates.pop(0)
    return partners


def traits_of(suspect: Suspect) -> Traits:
    """Return what a culprit or a finding is recognised by."""
    return Traits(
        signature=suspect.signature,
        name=suspect.title if isinstance(suspect, Finding) else suspect.name,
        kind=suspect.kind,
        type="" if isinstance(suspect, Finding) else suspect.type,
        growth=suspect.growth,
        device=suspect.device,
        phase=suspect.phase,
        is_finding=isinstance(suspect, Finding),
    )


def by_signature(one: Traits) -> Hashable:
    """Return what is the same while nothing on the way from the root was renamed."""
    return (one.signature, one.growth, one.device) if one.signature else None


def by_name(one: Traits) -> Hashable:
    """Return what is the same while it is called the same; of a finding, its kind."""
    if one.is_finding:
        return ("finding", one.kind, one.phase, one.device)
    return (one.name, one.kind, one.device)


def by_nature(one: Traits) -> Hashable:
    """Return what is the same under the same last name in the same class."""
    if one.is_finding:
        return None
    return (one.type, one.kind, last_name(one), owner_class(one), one.device)


def _is_telling(suspect: Suspect) -> bool:
    return isinstance(suspect, Culprit) and suspect.severity is not Severity.NOTE


def _grow_alike(one: Suspect, other: Suspect) -> bool:
    """Return whether two grow as fast, in the same place or under the same last name."""
    first, second = traits_of(one), traits_of(other)
    kinds = [(t.kind, t.type, t.growth, t.device, t.phase) for t in (first, second)]
    if kinds[0] != kinds[1] or one.unit != other.unit:
        return False
    same_place = _owner(first) == _owner(second) or last_name(first) == last_name(second)
    return same_place and _rates_alike(one, other)


def _rates_alike(one: Suspect, other: Suspect) -> bool:
    """Return whether two rates differ by nothing to speak of."""
    least = WORTH_A_WORD * max(abs(one.bytes_per_unit), abs(other.bytes_per_unit))
    return abs(one.bytes_per_unit - other.bytes_per_unit) <= least


def _owner(culprit: Traits) -> str:
    """Return what a culprit belongs to: ``Trainer.run`` of ``Trainer.run.all_boxes``."""
    return culprit.name.rpartition(".")[0]


def _suspects(report: Report) -> list[Suspect]:
    return [*report.culprits, *(f for f in report.findings if f.kind not in ENDINGS)]


def last_name(culprit: Traits) -> str:
    """Return the last component of a culprit's name: ``all_boxes`` of ``Trainer.run.all_boxes``."""
    return culprit.name.rpartition(".")[2]


def owner_class(culprit: Traits) -> str:
    """Return the class that a culprit belongs to, by the name's first part; empty for none."""
    parts = culprit.name.split(".")[:-1]
    return next((part for part in parts if part[:1].isupper()), "")
