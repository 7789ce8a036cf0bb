"""Which culprit of one run is which culprit of another.

The signature decides; where a function was renamed or a line moved, the same name does, or the
same kind of thing under the same last name in the same class.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from leakscope.analysis.ending import ENDINGS
from leakscope.model.report import Culprit, Finding, Report

Suspect = Culprit | Finding


def pair(before: Report, after: Report) -> list[tuple[Suspect | None, Suspect | None]]:
    """Return every culprit and finding of both runs, each at most once, matched where it can be."""
    left, right = _suspects(before), _suspects(after)
    partners: dict[int, Suspect] = {}
    taken: set[int] = set()
    for key in (_by_signature, _by_name, _by_nature):
        _match(left, right, key, partners, taken)
    pairs: list[tuple[Suspect | None, Suspect | None]] = [
        (suspect, partners.get(id(suspect))) for suspect in left
    ]
    pairs += [(None, suspect) for suspect in right if id(suspect) not in taken]
    return pairs


def _suspects(report: Report) -> list[Suspect]:
    return [*report.culprits, *(f for f in report.findings if f.kind not in ENDINGS)]


def _match(
    left: list[Suspect],
    right: list[Suspect],
    key: Callable[[Suspect], Hashable],
    partners: dict[int, Suspect],
    taken: set[int],
) -> None:
    """Match what is still free and has the same key, in the order of rank."""
    free: dict[Hashable, list[Suspect]] = {}
    for suspect in right:
        if id(suspect) not in taken and key(suspect) is not None:
            free.setdefault(key(suspect), []).append(suspect)
    for suspect in left:
        candidates = free.get(key(suspect), [])
        if id(suspect) not in partners and candidates:
            partner = candidates.pop(0)
            partners[id(suspect)] = partner
            taken.add(id(partner))


def _by_signature(suspect: Suspect) -> Hashable:
    return (suspect.signature, suspect.growth, suspect.device) if suspect.signature else None


def _by_name(suspect: Suspect) -> Hashable:
    if isinstance(suspect, Finding):
        return ("finding", suspect.kind, suspect.phase, suspect.device)
    return (suspect.name, suspect.kind, suspect.device)


def _by_nature(suspect: Suspect) -> Hashable:
    if isinstance(suspect, Finding):
        return None
    return (suspect.type, suspect.kind, last_name(suspect), owner_class(suspect), suspect.device)


def last_name(culprit: Culprit) -> str:
    """Return the last component of a culprit's name: ``all_boxes`` of ``Trainer.run.all_boxes``."""
    return culprit.name.rpartition(".")[2]


def owner_class(culprit: Culprit) -> str:
    """Return the class that a culprit belongs to, by the name's first part; empty for none."""
    parts = culprit.name.split(".")[:-1]
    return next((part for part in parts if part[:1].isupper()), "")
