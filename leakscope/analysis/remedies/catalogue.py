"""Known culprits of libraries: the shipped catalogue, a project's own entries, and what they match.

``catalogue.toml`` lies next to this module and is read when something grows. A name alone never
matches: holder, way, type, growth and the version that ran must all fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

import msgspec

from leakscope.analysis.growth import policy
from leakscope.model import gauge
from leakscope.model.census import CensusRow, Owner
from leakscope.model.known import (
    KnownCulprit,
    Match,
    MemoryPlace,
    Nature,
    Own,
    Recognised,
    read_toml,
    to_entry,
)
from leakscope.model.report import Remedy
from leakscope.model.text import human_bytes, human_count

CATALOGUE_FILE = Path(__file__).with_name("catalogue.toml")
SOURCE = "leakscope"
UNREADABLE = "Known culprits are not reported: this Python has no reader for TOML; install tomli."


@dataclass(frozen=True)
class CatalogueEntry:
    """An entry and its source."""

    known: KnownCulprit
    source: str = SOURCE


@dataclass(frozen=True)
class Catalogue:
    """Entries in the order in which they are tried: the first match counts."""

    entries: tuple[CatalogueEntry, ...] = ()
    version: str = ""
    """Of the shipped part."""
    faults: tuple[str, ...] = ()
    """What is left out, each as a sentence."""


@lru_cache(maxsize=1)
def shipped() -> Catalogue:
    """Return the catalogue that comes with leakscope."""
    try:
        table = read_toml(CATALOGUE_FILE.read_text(encoding="utf-8"))
    except ImportError:
        return Catalogue(faults=(UNREADABLE,))
    except OSError as fault:
        why = f"{CATALOGUE_FILE} can't be read ({fault.strerror}); reinstall leakscope."
        return Catalogue(faults=(f"Known culprits are not reported: {why}",))
    entries = tuple(CatalogueEntry(to_entry(entry)) for entry in table["culprit"])
    return Catalogue(entries, str(table["version"]))


def with_own(own: Own) -> Catalogue:
    """Return the shipped catalogue with a project's own entries before it: they know better."""
    base = shipped()
    mine = tuple(CatalogueEntry(known, source) for source, known in own.entries)
    return Catalogue((*mine, *base.entries), base.version, (*own.faults, *base.faults))


_HOST = "host"
_PLAIN = frozenset(
    {
        "list", "dict", "tuple", "set", "frozenset", "collections.deque",
        "collections.OrderedDict", "collections.defaultdict",
    }
)  # fmt: skip
"""Containers that say nothing about their holder."""
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
class Symptom:
    """A finding as entries see it."""

    kind: str
    highest: Callable[[str], float]
    """Returns what a gauge read at its highest, 0 where it wasn't read."""
    share: Callable[[str], float]
    """Returns which part of what resident memory gained a gauge has gained, 0 likewise."""
    native: Callable[[], Mapping[str, float]] = dict
    """Returns what native memory grew by, by the function that allocated it."""


@dataclass(frozen=True)
class KnownMatch:
    """The entry that matches a culprit, and its form in reports."""

    known: KnownCulprit
    recognised: Recognised


def find_known(
    sighting: Sighting, catalogue: Catalogue, environment: Mapping[str, str]
) -> KnownMatch | None:
    """Return the first entry that matches a culprit of a run with these versions."""
    holder, way = _holder_and_way(sighting)
    fitting = (e for e in catalogue.entries if _fits(e.known.match, sighting, holder, way))
    return _first_of_run(fitting, environment, holder or sighting.row.type)


def find_known_of_finding(
    symptom: Symptom, catalogue: Catalogue, environment: Mapping[str, str]
) -> KnownMatch | None:
    """Return the first entry that matches a finding of a run with these versions and settings."""
    shown = (entry for entry in catalogue.entries if _shows(symptom, entry.known.match))
    found = _first_of_run(shown, environment)
    if found is None:
        return None
    cause = found.recognised.cause + _evidence(found.known.match, symptom, environment)
    return KnownMatch(found.known, msgspec.structs.replace(found.recognised, cause=cause))


def _first_of_run(
    entries: Iterable[CatalogueEntry], environment: Mapping[str, str], of: str = ""
) -> KnownMatch | None:
    """Return the first of these that speaks of the settings and of the versions that ran."""
    for entry in entries:
        known = entry.known
        ran = _versions(known, of, environment)
        if _is_set(known.match, environment) and _speaks_of(known.versions, ran):
            return KnownMatch(known, _to_recognised(entry, ran))
    return None


def _shows(symptom: Symptom, match: Match) -> bool:
    """Whether a finding is of the kind, its gauges high enough, its native memory the entry's."""
    reads = all(symptom.highest(name) >= least for name, least in match.gauge.items())
    gains = all(symptom.share(name) >= least for name, least in match.share.items())
    if not (symptom.kind in match.finding and reads and gains):
        return False
    grown, patterns = symptom.native() if match.native else {}, match.native
    its = [size for name, size in grown.items() if any(fnmatchcase(name, p) for p in patterns)]
    most = policy.MOST_SHARE * sum(grown.values())
    return not patterns or (bool(its) and sum(its) >= most)


def _evidence(match: Match, symptom: Symptom, environment: Mapping[str, str]) -> str:
    """Return what of this run speaks for an entry, as a further sentence."""
    parts = []
    for name in dict.fromkeys((*match.gauge, *match.share)):
        unit, what = gauge.describe(name)
        say = human_bytes if unit == "bytes" else human_count
        part = f"{what}: {say(symptom.highest(name))}"
        gained = symptom.share(name) if name in match.share else 0.0
        parts.append(f"{part}, {gained:.0%} of what memory gained" if gained else part)
    for name in match.setting:
        is_set = name in environment
        parts.append(f"{name} is {environment[name]}" if is_set else f"{name} is not set")
    return f" In this run: {'; '.join(parts)}." if parts else ""


def _is_set(match: Match, environment: Mapping[str, str]) -> bool:
    """Whether the environment says what an entry needs; what isn't set is the empty text."""
    wanted = match.setting.items()
    return all(fnmatchcase(environment.get(name, ""), text) for name, text in wanted)


def _to_recognised(entry: CatalogueEntry, ran: Mapping[str, str]) -> Recognised:
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
    place = MemoryPlace.HOST if sighting.device == _HOST else MemoryPlace.OTHER
    is_held = not match.holder or any(fnmatchcase(holder, pattern) for pattern in match.holder)
    there = not match.path or any(_way_matches(pattern, way) for pattern in match.path)
    return (
        not match.finding
        and is_held
        and there
        and (not match.type or fnmatchcase(row.type, match.type))
        and (not match.holds or _holds(match, row))
        and (match.growth is None or match.growth.value == sighting.growth)
        and (match.device is None or match.device is place)
    )


def _holds(match: Match, row: CensusRow) -> bool:
    """Whether a row holds what an entry says; half of it where nothing else tells whose it is."""
    its = [content for content in row.holds if fnmatchcase(content.type, match.holds)]
    if match.holder or match.type:
        return bool(its)
    whole = sum(content.bytes for content in row.holds)
    return bool(its) and 2 * sum(content.bytes for content in its) >= whole


def _holder_and_way(sighting: Sighting) -> tuple[str, str]:
    row = sighting.row
    for above in reversed(sighting.above):
        if above.type not in _PLAIN:
            name_above = above.name if above.type in _NAMED else above.type
            return name_above, _after(row.path, above.path)
    if row.owner is None:
        return "", ""
    return _qualified(row.owner), _after(row.name, row.owner.name)


def _after(path: str, beginning: str) -> str:
    return path[len(beginning) :] if path.startswith(beginning) else ""


def _qualified(owner: Owner) -> str:
    name, module = owner.name, owner.module
    known = not module or name == module or name.startswith(f"{module}.")
    return name if known else f"{module}.{name}"


def _way_matches(pattern: str, way: str) -> bool:
    """Whether a way is the pattern's, whatever indices and keys follow it; ``[*]`` is the items of
    the holder itself.
    """
    names = re.escape(pattern.removesuffix("[*]")).replace(r"\*", r"[\w*]*")
    return re.fullmatch(rf"[.·]?{names}(\[[^\]]*\])*", way) is not None


def _versions(known: KnownCulprit, of: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what ran of an entry's library: the distribution that a type was imported from, else
    all that are installed.
    """
    package = of.partition(".")[0]
    own = [name for name in known.libraries if name.lower().replace("-", "_") == package.lower()]
    return {name: environment[name] for name in own or known.libraries if name in environment}


def _speaks_of(versions: str, ran: Mapping[str, str]) -> bool:
    if not versions or not ran:
        return not versions
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return all(SpecifierSet(versions).contains(v, prereleases=True) for v in ran.values())
    except InvalidVersion:
        return False


def prefer_known_remedy(known: KnownCulprit | None, general: Remedy) -> Remedy:
    """Return the library's own remedy, the general one where the catalogue knows of nothing."""
    if known is None:
        return general
    if general.diff is None or known.nature is Nature.FAULT:
        return Remedy(title=known.remedy.title, text=known.remedy.text)
    return msgspec.structs.replace(general, text=known.remedy.text, advice="")
