"""Which entry speaks of a culprit: holder, way, type, growth and the version that ran must all fit.

A name alone never does. What holds a container directly is known by its type, so that a user's own
``all_preds`` is told from the trainer's; a subclass of the user's is the user's. Where a library
goes by several names, the version counts of the one that the holder was imported from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from leakscope.analysis.known.catalogue import Catalogue, Entry
from leakscope.model.census import CensusRow, Owner
from leakscope.model.known import KnownCulprit, Match, Place, Recognised

_HOST = "host"
_PLAIN = frozenset(
    {
        "list",
        "dict",
        "tuple",
        "set",
        "frozenset",
        "collections.deque",
        "collections.OrderedDict",
        "collections.defaultdict",
    }
)
"""Containers that say nothing of who holds them."""
_NAMED = frozenset({"type", "function", "module"})
"""What is known by its own name, not by its type."""


@dataclass(frozen=True)
class Sighting:
    """A culprit as entries see it."""

    row: CensusRow
    above: Sequence[CensusRow]
    """What it is named through, outermost first."""
    growth: str
    device: str


@dataclass(frozen=True)
class Found:
    """The entry that speaks of a culprit, and what a report tells of it."""

    known: KnownCulprit
    told: Recognised


def find_known(
    sighting: Sighting, catalogue: Catalogue, environment: Mapping[str, str]
) -> Found | None:
    """Return the first entry that speaks of a culprit of a run with these versions."""
    holder, way = _held(sighting)
    for entry in catalogue.entries:
        if _fits(entry.known.match, sighting, holder, way):
            ran = _versions(entry.known, holder or sighting.row.type, environment)
            if _speaks_of(entry.known.versions, ran):
                return Found(entry.known, _told(entry, ran))
    return None


def _told(entry: Entry, ran: Mapping[str, str]) -> Recognised:
    known = entry.known
    library = next(iter(ran), known.libraries[0])
    return Recognised(
        id=known.id,
        title=known.title,
        library=library,
        version=ran.get(library, ""),
        nature=known.nature,
        cause=known.cause,
        link=known.link,
        source=entry.source,
    )


def _fits(match: Match, sighting: Sighting, holder: str, way: str) -> bool:
    row = sighting.row
    place = Place.HOST if sighting.device == _HOST else Place.OTHER
    held = not match.holder or any(fnmatchcase(holder, pattern) for pattern in match.holder)
    there = not match.path or any(_leads(pattern, way) for pattern in match.path)
    return (
        held
        and there
        and (not match.type or fnmatchcase(row.type, match.type))
        and (not match.holds or any(fnmatchcase(c.type, match.holds) for c in row.holds))
        and (match.growth is None or match.growth.value == sighting.growth)
        and (match.device is None or match.device is place)
    )


def _held(sighting: Sighting) -> tuple[str, str]:
    """Return what holds a culprit directly, and the way from there: ``.state.log_history[*]``."""
    row = sighting.row
    for above in reversed(sighting.above):
        if above.type not in _PLAIN:
            says = above.name if above.type in _NAMED else above.type
            return says, _after(row.path, above.path)
    if row.owner is None:
        return "", ""
    return _qualified(row.owner), _after(row.name, row.owner.name)


def _after(path: str, beginning: str) -> str:
    return path[len(beginning) :] if path.startswith(beginning) else ""


def _qualified(owner: Owner) -> str:
    name, module = owner.name, owner.module
    known = not module or name == module or name.startswith(f"{module}.")
    return name if known else f"{module}.{name}"


def _leads(pattern: str, way: str) -> bool:
    """Whether a way is the pattern's, whatever indices and keys follow it."""
    names = re.escape(pattern).replace(r"\*", r"[\w*]*")
    return re.fullmatch(rf"[.·]?{names}(\[[^\]]*\])*", way) is not None


def _versions(known: KnownCulprit, of: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what ran of an entry's library: the distribution that a type was imported from, else
    all that are installed.
    """
    package = of.partition(".")[0]
    own = [name for name in known.libraries if name.lower().replace("-", "_") == package.lower()]
    return {name: environment[name] for name in own or known.libraries if name in environment}


def _speaks_of(versions: str, ran: Mapping[str, str]) -> bool:
    if not versions:
        return True
    return bool(ran) and all(_is_within(version, versions) for version in ran.values())


def _is_within(version: str, versions: str) -> bool:
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(versions).contains(version, prereleases=True)
    except InvalidVersion:
        return False
