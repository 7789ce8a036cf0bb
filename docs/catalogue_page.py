"""Prints the catalogue as a page: ``python docs/catalogue_page.py``."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from leakscope.analysis.remedies.catalogue import Catalogue, shipped
from leakscope.model import gauge
from leakscope.model.known import GrowthKind, KnownCulprit, Match, MemoryPlace, Nature
from leakscope.model.text import human_bytes, human_count

_NATURES = {
    Nature.FAULT: "a fault of the library",
    Nature.USAGE: "known behaviour: what a use of the library keeps",
}
_GROWTHS = {GrowthKind.ACROSS: "growing across phases", GrowthKind.WITHIN: "growing within a phase"}
_PLACES = {MemoryPlace.HOST: "on the host", MemoryPlace.OTHER: "on a device"}
_HEAD = Path(__file__).with_name("known-culprits-head.md")


def page_text(catalogue: Catalogue) -> str:
    """Return the page as it stands in ``docs/known-culprits.md``."""
    entries = [entry.known for entry in catalogue.entries]
    parts = [_HEAD.read_text(encoding="utf-8"), f"## The catalogue, version {catalogue.version}\n"]
    for library, some in groupby(entries, key=lambda entry: entry.libraries[0]):
        parts.append(f"### {library}\n")
        parts += [_entry(entry) for entry in some]
    return "\n".join(parts)


def _entry(entry: KnownCulprit) -> str:
    versions = ", ".join(entry.versions.split(",")) or "all"
    return (
        f"#### {entry.title}\n\n"
        f"`{entry.id}` · {', '.join(entry.libraries)} {versions} · {_NATURES[entry.nature]} · "
        f"<{entry.link}>\n\n"
        f"{entry.cause}\n\n"
        f"**{entry.remedy.title}.** {entry.remedy.text}\n\n"
        f"Recognised by {_match(entry.match)}.\n"
    )


def _match(match: Match) -> str:
    parts = []
    if match.path:
        parts.append(_any_of(match.path))
    if match.type:
        parts.append(f"of type `{match.type}`")
    if match.holds:
        parts.append(f"with `{match.holds}` in it")
    if match.holder:
        parts.append(f"in {_any_of(match.holder)}")
    parts += [_GROWTHS[match.growth]] if match.growth else []
    parts += [_PLACES[match.device]] if match.device else []
    parts += [f"a finding {_any_of(match.finding)}"] if match.finding else []
    conditions = [
        *(
            f"`{name}` {f'is `{text}`' if text else 'not set'}"
            for name, text in match.setting.items()
        ),
        *(f"`{name}` at {_size(name, least)} or more" for name, least in match.gauge.items()),
        *(f"`{name}` with {least:.0%} of the growth" for name, least in match.share.items()),
        *([f"native memory of {_any_of(match.native)}"] if match.native else []),
    ]
    return f"{' '.join(parts)}{', with ' if conditions else ''}{', '.join(conditions)}"


def _size(name: str, least: float) -> str:
    return human_bytes(least) if gauge.describe(name)[0] == "bytes" else human_count(least)


def _any_of(texts: list[str]) -> str:
    return " or ".join(f"`{text}`" for text in texts)


if __name__ == "__main__":
    sys.stdout.write(page_text(shipped()))
