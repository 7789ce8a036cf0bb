"""The configuration in force: defaults, then ``pyproject.toml``, then the environment.

Arguments of the API come after them, and options of the command line last. ``[tool.leakscope]`` is
read from the nearest ``pyproject.toml`` that has it, with its two lists: ``known-culprits`` is what
a project knows of its libraries (files, or the entries themselves), ``suppress`` is what it
accepts, why, and until when. An entry that makes no sense is reported and left out.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from leakscope.configuration import (
    BY_NAME,
    CHECK,
    PREFIX,
    SETTINGS,
    SWITCHES,
    Setting,
    UnreadableError,
)
from leakscope.model.documents import Suppression
from leakscope.model.errors import LeakscopeError
from leakscope.model.known import EntryError, KnownCulprit, Own, read_toml, to_entry
from leakscope.model.text import clipped, one_line

FILE = "pyproject.toml"
_TABLE_NAME = b"leakscope"
_HEADER = re.compile(rb"^\s*(\[\[?\s*)?tool\s*\.\s*[\"']?leakscope\b", re.MULTILINE)
"""By which a file that is no TOML is known to be meant for leakscope too."""
_MOST_BYTES = 1 << 20
"""A file that is larger was written by no person."""
KNOWN_CULPRITS_KEY = "known-culprits"
_SPELLINGS = (KNOWN_CULPRITS_KEY, "known_culprits")
_TABLES = "culprit"
SUPPRESS = "suppress"
_PATTERN_KEYS = ("signature", "pattern", "path")
_SUPPRESSION_KEYS = (*_PATTERN_KEYS, "reason", "expires")
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_LONGEST_VALUE = 80
_LONGEST_SHOWN = 60


@dataclass(frozen=True)
class Chosen:
    """A value, and where it was chosen."""

    value: Any
    source: str


@dataclass(frozen=True)
class Configuration:
    """What a project and its environment chose, and what is wrong with it."""

    section: Section
    chosen: dict[str, Chosen] = field(default_factory=dict)
    """By the name of the setting; what nobody chose is not in it."""
    faults: list[str] = field(default_factory=list)
    """Values that can't be followed, each as a sentence."""
    remarks: list[str] = field(default_factory=list)
    """What is passed over, such as unknown keys, each as a sentence."""
    misread: list[str] = field(default_factory=list)
    """Those of the remarks by which a gate would judge by something else than what was written."""

    def value(self, name: str) -> Any:
        """Return what is in force."""
        found = self.chosen.get(name)
        return BY_NAME[name].default if found is None else found.value

    def refuse_faults(self, *, for_gate: bool = False) -> None:
        """Refuse a configuration that can't be followed.

        Raises:
            LeakscopeError: a value is invalid; for a gate also where the file can't be read, or has
                tables or keys of a check that are none.

        """
        for sentence in [*self.faults, *(self.misread if for_gate else ())]:
            raise _bad(sentence)


def read_configuration(
    start: Path | None = None, environment: Mapping[str, str] | None = None
) -> Configuration:
    """Return what is chosen for a folder, the working directory unless another is named.

    Nothing is raised for it: :meth:`Configuration.refuse_faults` does that.
    """
    section = read_section(_folder() if start is None else start)
    found = Configuration(section, remarks=list(section.remarks), misread=list(section.remarks))
    for name, value in _written(section, found):
        setting = BY_NAME.get(name.replace("_", "-"))
        if setting is not None:
            _read_value(found, setting, value, f"{section.path}", section.folder)
        else:
            known = [*BY_NAME, CHECK, SUPPRESS, KNOWN_CULPRITS_KEY]
            sentence = _unknown(name, known, f"[tool.leakscope] of {section.path}")
            _pass_over(found, sentence, is_misread=_may_be_of_a_check(name, value))
    variables = {setting.variable: setting for setting in SETTINGS}
    for name, text in sorted((os.environ if environment is None else environment).items()):
        if not name.startswith(PREFIX) or name in SWITCHES or not text:
            continue
        setting = variables.get(name)
        if setting is not None:
            _read_value(found, setting, setting.kind.from_text(text), name, Path())
        else:
            is_of_check = name.startswith(f"{PREFIX}{CHECK.upper()}_")
            sentence = _unknown(name, [*variables, *SWITCHES], "leakscope")
            _pass_over(found, sentence, is_misread=is_of_check)
    return found


def _pass_over(found: Configuration, sentence: str, *, is_misread: bool) -> None:
    found.remarks.append(sentence)
    if is_misread:
        found.misread.append(sentence)


def _folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return Path("/")


def _written(section: Section, found: Configuration) -> Iterator[tuple[str, object]]:
    """Yield the names and values that a section holds, those of tables within it after a dot."""
    for key, value in section.table.items():
        if key == SUPPRESS or key in _SPELLINGS:
            continue
        if key != CHECK:
            yield key, value
        elif isinstance(value, dict):
            for inner, item in value.items():
                yield f"{CHECK}.{inner}", item
        else:
            found.faults.append(
                f"{CHECK} in {section.path} must be a table, [tool.leakscope.check]."
            )


def _may_be_of_a_check(key: str, value: object) -> bool:
    """Return whether an unknown key is one of a check, or a table: only those of a gate are one."""
    is_table = isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(item, dict) for item in value)
    )
    return is_table or key.startswith(f"{CHECK}.")


def _read_value(
    found: Configuration, setting: Setting, value: object, source: str, folder: Path
) -> None:
    try:
        meant = setting.kind.read(value)
    except UnreadableError as fault:
        shown = clipped(repr(value), _LONGEST_VALUE)
        where = source if source == setting.variable else f"{setting.name} in {source}"
        found.faults.append(f"{where} must be {fault}, not {shown}.")
        found.chosen.pop(setting.name, None)
        return
    if isinstance(meant, Path):
        meant = folder / meant
    found.chosen[setting.name] = Chosen(meant, source)


@dataclass(frozen=True)
class Section:
    """What a project chose, and what is wrong with the file."""

    path: Path | None = None
    table: dict[str, Any] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The folder that paths in it are relative to."""
        return self.path.parent if self.path is not None else Path()


def read_section(start: Path) -> Section:
    """Return ``[tool.leakscope]`` of the nearest file at or above a folder that has one.

    A file that can't be read becomes a remark of the section, and costs nothing else: a broken
    ``pyproject.toml`` must not keep anybody from training.
    """
    for folder in (start, *start.parents):
        path = folder / FILE
        text = _read(path)
        section = None if text is None or _TABLE_NAME not in text else _parse(path, text)
        if section is not None:
            return section
    return Section()


def _read(path: Path) -> bytes | None:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        return path.read_bytes()
    except OSError:
        return None


def _parse(path: Path, text: bytes) -> Section | None:
    """Return a file's section; None where it has none, as far as a broken one shows."""
    is_meant = _HEADER.search(text) is not None
    try:
        table = read_toml(text.decode()).get("tool", {}).get("leakscope")
    except (ImportError, ValueError, AttributeError, RecursionError) as fault:
        lacks_reader = isinstance(fault, ImportError)
        why = "Python 3.10 has no TOML reader; install tomli" if lacks_reader else str(fault)
        return (
            Section(path, remarks=[f"{path} is not read: {one_line(why)}."]) if is_meant else None
        )
    if table is None:
        return None
    if not isinstance(table, dict):
        return Section(path, remarks=[f"tool.leakscope in {path} is not read: it is no table."])
    return Section(path, table)


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

    It is called where a training begins, which no entry may prevent.
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
                f"{KNOWN_CULPRITS_KEY} in {section.path} must be a list of files, or be written as "
                f"[[tool.leakscope.{KNOWN_CULPRITS_KEY}]]."
            )
            continue
        for number, item in enumerate(value, 1):
            if isinstance(item, str):
                yield from _of_file(section.folder / item, faults)
            else:
                yield str(section.path), number, item


def _of_file(path: Path, faults: list[str]) -> Iterator[tuple[str, int, object]]:
    found: object = None
    why = f"it has no [[{_TABLES}]]"
    try:
        if path.stat().st_size > _MOST_BYTES or not path.is_file():
            why = "it is too large" if path.is_file() else "it is no file"
        else:
            found = read_toml(path.read_text(encoding="utf-8")).get(_TABLES)
    except ImportError:
        why = "there is no reader for TOML"
    except OSError as fault:
        why = f"it can't be read ({fault.strerror or fault})"
    except (ValueError, RecursionError) as fault:
        why = f"it is no TOML ({one_line(str(fault))})"
    if isinstance(found, list) and found:
        for number, table in enumerate(found, 1):
            yield str(path), number, table
    else:
        faults.append(f"Known culprits of {path} are left out: {why}.")


def _name_of(table: object, number: int) -> str:
    name = table.get("id") if isinstance(table, dict) else None
    return (
        clipped(name, _LONGEST_SHOWN)
        if isinstance(name, str) and name.strip()
        else f"number {number}"
    )


def read_suppressions(section: Section) -> tuple[list[Suppression], list[str]]:
    """Return the suppressions of a project, and a sentence for each key that is unknown.

    Raises:
        LeakscopeError: one has no reason, no pattern, or a value of the wrong type.

    """
    entries = section.table.get(SUPPRESS, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _bad(
            f"{SUPPRESS} in {section.path} must be written as [[tool.leakscope.{SUPPRESS}]]."
        )
    found = [_suppression(entry, f"{_ordinal(n)} [[tool.leakscope.{SUPPRESS}]] of {section.path}")
             for n, entry in enumerate(entries, 1)]  # fmt: skip
    remarks = [
        _unknown(key, _SUPPRESSION_KEYS, f"[[tool.leakscope.{SUPPRESS}]] of {section.path}")
        for entry in entries
        for key in entry
        if key not in _SUPPRESSION_KEYS
    ]
    return found, remarks


def _suppression(entry: dict[str, Any], where: str) -> Suppression:
    texts = {key: entry.get(key, "") for key in (*_PATTERN_KEYS, "reason")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise _bad(f"{key} must be a text, not {value!r}: see the {where}.")
    if not any(texts[key].strip() for key in _PATTERN_KEYS):
        raise _bad(f"The {where} names nothing: give it a signature, a pattern or a path.")
    if not texts["reason"].strip():
        raise _bad(f'The {where} has no reason; say why it is put up with: reason = "…".')
    return Suppression(**texts, expires=_date(entry.get("expires"), where))


def _date(value: object, where: str) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    if value is None or isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise _bad(
            f"expires must be a date such as 2027-01-31, not {value!r}: see the {where}."
        ) from None


def _ordinal(number: int) -> str:
    return f"{number}{'th' if 10 <= number % 100 <= 20 else _ENDINGS.get(number % 10, 'th')}"


def _bad(sentence: str) -> LeakscopeError:
    return LeakscopeError(sentence, slug="bad-configuration")


def _unknown(key: str, known: Iterable[str], where: str) -> str:
    """Return a sentence that names the known key which is most like an unknown one."""
    names = list(known)
    shown = clipped(key, _LONGEST_SHOWN)
    likely = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    meant = f"did you mean {likely[0]}?" if likely else f"it knows {', '.join(names)}."
    return f"{where} has no {shown}; {meant}"
