"""The catalogue: ``catalogue.toml`` beside this module, read when something grows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from leakscope.model.known import KnownCulprit, Own, to_entry
from leakscope.model.toml import read_toml

FILE = Path(__file__).with_name("catalogue.toml")
SOURCE = "leakscope"
UNREADABLE = "The known culprits are not told: this Python has no reader for TOML; install tomli."


@dataclass(frozen=True)
class Entry:
    """An entry, and who says so."""

    known: KnownCulprit
    source: str = SOURCE


@dataclass(frozen=True)
class Catalogue:
    """Entries in the order in which they are asked: the first that matches speaks."""

    entries: tuple[Entry, ...] = ()
    version: str = ""
    """Of the shipped part."""
    faults: tuple[str, ...] = ()
    """What is left out, each as a sentence."""


@lru_cache(maxsize=1)
def shipped() -> Catalogue:
    """Return the catalogue that comes with leakscope."""
    try:
        table = read_toml(FILE.read_text(encoding="utf-8"))
    except ImportError:
        return Catalogue(faults=(UNREADABLE,))
    except OSError as fault:
        why = f"{FILE} can't be read ({fault.strerror}); install leakscope anew."
        return Catalogue(faults=(f"The known culprits are not told: {why}",))
    entries = tuple(Entry(to_entry(entry)) for entry in table["culprit"])
    return Catalogue(entries, str(table["version"]))


def with_own(own: Own) -> Catalogue:
    """Return the shipped catalogue with a project's own entries before it: they know better."""
    base = shipped()
    mine = tuple(Entry(known, source) for source, known in own.entries)
    return Catalogue((*mine, *base.entries), base.version, (*own.faults, *base.faults))
