"""The configuration in force: defaults, then ``pyproject.toml``, then the environment.

Arguments of the API come after them, and options of the command line last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leakscope.configuration import pyproject
from leakscope.configuration.pyproject import Section, read_section
from leakscope.configuration.settings import (
    BY_NAME,
    CHECK,
    SETTINGS,
    SWITCHES,
    Setting,
    UnreadableError,
    bad_value,
    unknown_key,
)
from leakscope.model.text import clipped

_PREFIX = "LEAKSCOPE_"
_LONGEST_VALUE = 80


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

    def refuse_faults(self) -> None:
        """Refuse a configuration that can't be followed.

        Raises:
            LeakscopeError: a value makes no sense; the first that does.

        """
        if self.faults:
            raise bad_value(self.faults[0])

    def refuse_misread(self) -> None:
        """Refuse a configuration of which a gate would pass something over.

        Raises:
            LeakscopeError: the file can't be read, or has tables or keys of a check that are none.

        """
        if self.misread:
            raise bad_value(self.misread[0])


def read_configuration(
    start: Path | None = None, environment: Mapping[str, str] | None = None
) -> Configuration:
    """Return what is chosen for a folder, the working directory unless another is named.

    Nothing is raised for it: :meth:`Configuration.refuse_faults` does that.
    """
    section = read_section(_folder() if start is None else start)
    found = Configuration(section, remarks=list(section.remarks), misread=list(section.remarks))
    for name, value in _written(section, found):
        _choose(found, name, value, f"{section.path}", section.folder)
    for name, text in sorted((os.environ if environment is None else environment).items()):
        if name.startswith(_PREFIX) and name not in SWITCHES and text:
            _choose_by_variable(found, name, text)
    return found


def _folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return Path("/")


def _written(section: Section, found: Configuration) -> Iterator[tuple[str, object]]:
    """Yield the names and values that a section holds, those of tables within it after a dot."""
    for key, value in section.table.items():
        if key == pyproject.SUPPRESS or pyproject.is_known_culprits(key):
            continue
        if key != CHECK:
            yield key, value
        elif isinstance(value, dict):
            for inner, one in value.items():
                yield f"{CHECK}.{inner}", one
        else:
            found.faults.append(
                f"{CHECK} in {section.path} must be a table, [tool.leakscope.check]."
            )


def _choose(found: Configuration, key: str, value: object, source: str, folder: Path) -> None:
    setting = BY_NAME.get(key.replace("_", "-"))
    if setting is None:
        known = [*BY_NAME, CHECK, pyproject.SUPPRESS, pyproject.KNOWN_CULPRITS_KEY]
        sentence = unknown_key(key, known, f"[tool.leakscope] of {source}")
        found.remarks.append(sentence)
        if _may_be_of_a_check(key, value):
            found.misread.append(sentence)
        return
    _read(found, setting, value, source, folder)


def _may_be_of_a_check(key: str, value: object) -> bool:
    """Return whether an unknown key is one of a check, or a table: only those of a gate are one."""
    is_table = isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(one, dict) for one in value)
    )
    return is_table or key.startswith(f"{CHECK}.")


def _choose_by_variable(found: Configuration, name: str, text: str) -> None:
    setting = next((setting for setting in SETTINGS if setting.variable == name), None)
    if setting is None:
        known = [*(setting.variable for setting in SETTINGS), *SWITCHES]
        sentence = unknown_key(name, known, "leakscope")
        found.remarks.append(sentence)
        if name.startswith(f"{_PREFIX}{CHECK.upper()}_"):
            found.misread.append(sentence)
        return
    _read(found, setting, setting.from_text(text), name, Path())


def _read(found: Configuration, setting: Setting, value: object, source: str, folder: Path) -> None:
    try:
        meant = setting.read(value)
    except UnreadableError as fault:
        shown = clipped(repr(value), _LONGEST_VALUE)
        where = source if source == setting.variable else f"{setting.name} in {source}"
        found.faults.append(f"{where} must be {fault}, not {shown}.")
        found.chosen.pop(setting.name, None)
        return
    if isinstance(meant, Path):
        meant = folder / meant
    found.chosen[setting.name] = Chosen(meant, source)
