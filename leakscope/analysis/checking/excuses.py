"""Patterns and suppressions: what they match, and which of them excuse nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import date
from fnmatch import fnmatchcase

from leakscope.analysis.comparing.matching import Suspect
from leakscope.model.check import Suppression
from leakscope.model.report import Culprit

_ELSEWHERE = ("/", "..", "<")


def matches(pattern: str, texts: Iterable[str]) -> bool:
    """Return whether a pattern is one of the texts or matches one, as file names are matched.

    A name may hold ``[*]`` itself, so a name that is pasted as it stands matches too.
    """
    return any(text == pattern or fnmatchcase(text, pattern) for text in texts if text)


def names_of(suspect: Suspect) -> list[str]:
    """Return by what names a pattern may mean a culprit or a finding."""
    if isinstance(suspect, Culprit):
        return [rule_of(suspect), suspect.name, suspect.path, *suspect.also_named]
    return [rule_of(suspect), suspect.title]


def rule_of(suspect: Suspect) -> str:
    """Return the kind of diagnosis: that of a culprit is told by how it grows and what it keeps."""
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
    told = []
    for one in suppressions:
        subject = f"The suppression of {subject_of(one)} ({one.reason})"
        if is_expired(one, today):
            told.append(f"{subject} expired on {one.expires} and no longer counts.")
        elif not any(excuses(one, suspect) for suspect in suspects):
            told.append(f"{subject} matches nothing in this run: {_mended(one)}.")
    idle = [p for p in ignored if not any(matches(p, names_of(suspect)) for suspect in suspects)]
    return told + [f"The ignored pattern {p} matches nothing in this run." for p in idle]


def _mended(suppression: Suppression) -> str:
    if not suppression.signature:
        return "remove it, or mend its pattern"
    return (
        "remove it, or give it a pattern. A signature changes with the names of variables and "
        "functions on the way to what grows"
    )


def subject_of(suppression: Suppression) -> str:
    """Return what a suppression speaks of, as its author wrote it."""
    return " in ".join(
        text for text in (suppression.pattern, suppression.signature, suppression.path) if text
    )
