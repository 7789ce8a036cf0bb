"""Known culprits: what libraries are known to keep, why, and what they offer against it; and
reading TOML.

The entries of a catalogue, shipped or a project's own, and what a report says of a culprit that
one of them describes. A malformed entry is refused by type, with a sentence for whoever wrote it.
"""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import msgspec

from leakscope.model.text import clipped

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
Name = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9]+(-[a-z0-9]+)*\Z")]
Address = Annotated[str, msgspec.Meta(pattern=r"\Ahttps?://[^\s<>\"']+\Z")]

_WANTED = {
    "id": "small letters, digits and dashes, such as my-history",
    "nature": 'must be "fault" or "usage"',
    "link": "an address that begins with https://",
    "growth": 'must be "across" or "within"',
    "device": 'must be "host" or "other"',
    "versions": "a range such as >=1.2,<2",
    "setting": 'must be texts by name, such as { MALLOC_ARENA_MAX = "" }',
    "gauge": "must be whole numbers by name, such as { mapped_arenas = 33554432 }",
    "share": "must be numbers by name, such as { mapped_arenas = 0.5 }",
}
_LONGEST = 60


class Nature(str, Enum):
    """Whose doing it is."""

    FAULT = "fault"
    """The library's: fixed in some version, or not yet."""
    USAGE = "usage"
    """The user's, by a use of the library that is documented to keep what it is given."""


class GrowthKind(str, Enum):
    """How a culprit must grow for an entry to apply."""

    ACROSS = "across"
    WITHIN = "within"


class MemoryPlace(str, Enum):
    """Where a culprit's memory must lie for an entry to apply."""

    HOST = "host"
    OTHER = "other"


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a culprit must be for an entry to apply: every field that is given must match."""

    holder: list[Text] = []
    """Qualified type of the object that holds it directly, or the library's function, class or
    module whose variable it is; one of these, ``*`` for any part."""
    path: list[Text] = []
    """The way from the holder to it, indices and keys at the end left out: ``_predictions``; one of
    these, ``*`` for any part of a name."""
    type: str = ""
    """Its qualified type, ``*`` for any part."""
    holds: str = ""
    """Qualified type of something that it holds, ``*`` for any part. Without holder and type it
    must be half of what it holds at least."""
    growth: GrowthKind | None = None
    device: MemoryPlace | None = None
    finding: list[Text] = []
    """Kinds of findings, such as ``allocator_slack``: the entry speaks of these, not of culprits.
    """
    setting: dict[str, str] = {}
    """What the run's environment says, by name, ``*`` for any part; an empty text where the name
    must not be set."""
    gauge: dict[str, int] = {}
    """The least that a gauge must have read at its highest, by its name."""
    share: dict[str, float] = {}
    """The least part of what resident memory gained that a gauge must have gained, by its name."""
    native: list[Text] = []
    """Native functions, ``*`` for any part: one of these must have allocated most of the sampled
    native memory that grows."""
    started_by: list[Text] = []
    """Full names of what the program calls to start it: the report shows the lines that do."""


class KnownRemedy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the library itself offers."""

    title: Text
    text: Text


class KnownCulprit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of a catalogue."""

    id: Name
    title: Text
    """What happens, in a few words."""
    library: Text | list[Text]
    """Its distribution, as ``pip`` calls it; several where one library goes by several names."""
    versions: str = ""
    """The versions that do so, as in a requirement: ``>=1.2,<2``. Empty for all."""
    nature: Nature
    cause: Text
    link: Address
    """Where the library's people or its users say so."""
    remedy: KnownRemedy
    match: Match

    @property
    def libraries(self) -> list[str]:
        """The distributions that it may be."""
        return [self.library] if isinstance(self.library, str) else self.library


class Recognised(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a culprit that an entry describes."""

    id: str
    title: str
    library: str
    version: str
    """The version that ran; empty where it wasn't recorded and the entry applies to all."""
    nature: Nature
    cause: str
    link: str
    source: str
    """Who says so: ``leakscope``, or the file of the project's own entries."""


@dataclass(frozen=True)
class Own:
    """A project's own entries, and what is wrong with those that are left out."""

    entries: tuple[tuple[str, KnownCulprit], ...] = ()
    """Each with the file that it stands in."""
    faults: tuple[str, ...] = ()
    """A sentence for each entry or file that is left out."""


class EntryError(ValueError):
    """An invalid entry; the message continues after its name."""


def to_entry(table: object) -> KnownCulprit:
    """Return the entry that a table of a file means.

    Raises:
        EntryError: it isn't one; the message says what is wrong with it.

    """
    try:
        entry = msgspec.convert(table, KnownCulprit)
    except msgspec.ValidationError as fault:
        raise EntryError(_in_words(str(fault), table)) from fault
    _refuse_what_matches_too_much(entry)
    _refuse_bad_versions(entry.versions)
    return entry


def _refuse_what_matches_too_much(entry: KnownCulprit) -> None:
    """A bare ``list`` or ``*`` would match anybody's container."""
    match = entry.match
    if match.finding:
        _refuse_a_culprits_fields(match)
        return
    field, named = "type", [match.type]
    if match.holder:
        field, named = "holder", match.holder
    elif match.holds and not match.type:
        field, named = "holds", [match.holds]
    for text in named:
        if not re.match(r"[A-Za-z_]\w*\.", text) and text not in sys.stdlib_module_names:
            raise EntryError(
                f"match.{field} must begin with the library's package, such as mylib.Thing, "
                f"not {clipped(repr(text), _LONGEST)}"
            )
    if match.holder and not match.path:
        raise EntryError("match.holder needs match.path, the attribute of the holder that grows")


def _refuse_a_culprits_fields(match: Match) -> None:
    """A finding has no container."""
    patterns = {
        "holder": match.holder,
        "path": match.path,
        "type": match.type,
        "holds": match.holds,
    }
    for field, value in patterns.items():
        if value:
            raise EntryError(f"match.{field} is of a container, and match.finding of none")


def _refuse_bad_versions(versions: str) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(versions)
    except InvalidSpecifier:
        shown = clipped(repr(versions), _LONGEST)
        raise EntryError(f"versions must be {_WANTED['versions']}, not {shown}") from None


def _in_words(fault: str, table: object) -> str:
    """Return msgspec's complaint in the words of the file."""
    if not isinstance(table, dict):
        return "it must be a table"
    where = re.search(r"`\$\.?([^`]*)`", fault)
    at = (where[1] if where else "").removesuffix("[...]")
    missing = re.search(r"missing required field `(.+?)`", fault)
    if missing:
        return f"it has no {_joined(at, missing[1])}"
    unknown = re.search(r"unknown field `(.+?)`", fault, re.DOTALL)
    if unknown:
        return f"it has {clipped(_joined(at, unknown[1]), _LONGEST)}, which no entry has"
    wanted = _WANTED.get(at.rpartition(".")[2], "a text that isn't empty")
    if at in {"match", "remedy"}:
        wanted = "a table"
    elif "array" in fault:
        wanted = "a list of texts"
    shown = clipped(repr(_value_at(table, at)), _LONGEST)
    must = wanted if wanted.startswith("must") else f"must be {wanted}"
    return f"{at} {must}, not {shown}"


def _joined(at: str, field: str) -> str:
    return f"{at}.{field}" if at else field


def _value_at(table: Any, at: str) -> Any:
    for key in at.split("."):
        table = table.get(key.partition("[")[0]) if isinstance(table, dict) else None
    return table


def read_toml(text: str) -> dict[str, Any]:
    """Return what a TOML document says.

    Raises:
        ImportError: this Python has no reader for it.
        ValueError: it is none.

    """
    try:
        reader = importlib.import_module("tomllib")
    except ImportError:
        reader = importlib.import_module("tomli")
    table: dict[str, Any] = reader.loads(text)
    return table
