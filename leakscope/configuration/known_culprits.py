"""``known-culprits`` of ``[tool.leakscope]``: what a project knows of its libraries.

A list of files, or the entries themselves as ``[[tool.leakscope.known-culprits]]``. An entry that
makes no sense is told and left out, and so is a file: the others count.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from leakscope.configuration.pyproject import Section
from leakscope.model.known import EntryError, KnownCulprit, Own, to_entry
from leakscope.model.printable import clipped, one_line
from leakscope.model.toml import read_toml

KEY = "known-culprits"
_SPELLINGS = (KEY, "known_culprits")
_TABLES = "culprit"
_MOST_BYTES = 1 << 20
_LONGEST = 60


def is_known_culprits(key: str) -> bool:
    """Return whether a key of the section is that of the entries."""
    return key in _SPELLINGS


def read_known_culprits(section: Section) -> Own:
    """Return a project's own entries, and a sentence for whatever is left out."""
    faults: list[str] = []
    taken: dict[str, tuple[str, KnownCulprit]] = {}
    for file, number, table in _tables(section, faults):
        name = _name_of(table, number)
        try:
            entry = to_entry(table)
        except EntryError as fault:
            faults.append(f"Known culprit {name} of {file} is left out: {one_line(str(fault))}.")
            continue
        if entry.id in taken:
            faults.append(f"Known culprit {name} of {file} is left out: another has its id.")
            continue
        taken[entry.id] = (file, entry)
    return Own(tuple(taken.values()), tuple(faults))


def own_libraries(section: Section) -> list[str]:
    """Return the distributions that a project's own entries speak of; raises nothing.

    It is asked where a training begins, which no entry may keep from beginning.
    """
    try:
        own = read_known_culprits(section)
    except Exception:
        return []
    return sorted({library for _, entry in own.entries for library in entry.libraries})


def _tables(section: Section, faults: list[str]) -> Iterator[tuple[str, int, object]]:
    """Yield each entry with its file and its number there."""
    for key in _SPELLINGS:
        value = section.table.get(key, [])
        if not isinstance(value, list):
            faults.append(
                f"{KEY} in {section.path} must be a list of files, or be written as "
                f"[[tool.leakscope.{KEY}]]."
            )
            continue
        for number, one in enumerate(value, 1):
            if isinstance(one, str):
                yield from _of_file(section.folder / one, faults)
            else:
                yield str(section.path), number, one


def _of_file(path: Path, faults: list[str]) -> Iterator[tuple[str, int, object]]:
    try:
        if path.stat().st_size > _MOST_BYTES or not path.is_file():
            why = "is no file" if not path.is_file() else "is too large"
            faults.append(f"Known culprits of {path} are left out: it {why}.")
            return
        found = read_toml(path.read_text(encoding="utf-8")).get(_TABLES, [])
    except ImportError:
        faults.append(f"Known culprits of {path} are left out: there is no reader for TOML.")
        return
    except OSError as fault:
        why = fault.strerror or str(fault)
        faults.append(f"Known culprits of {path} are left out: it can't be read ({why}).")
        return
    except (ValueError, RecursionError) as fault:
        why = one_line(str(fault))
        faults.append(f"Known culprits of {path} are left out: it is no TOML ({why}).")
        return
    if not isinstance(found, list) or not found:
        faults.append(f"Known culprits of {path} are left out: it has no [[{_TABLES}]].")
        return
    for number, table in enumerate(found, 1):
        yield str(path), number, table


def _name_of(table: object, number: int) -> str:
    name = table.get("id") if isinstance(table, dict) else None
    return clipped(name, _LONGEST) if isinstance(name, str) and name.strip() else f"number {number}"
