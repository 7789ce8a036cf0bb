"""``[tool.leakscope]`` of the nearest ``pyproject.toml`` that has it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leakscope.model.printable import one_line
from leakscope.model.toml import read_toml

FILE = "pyproject.toml"
_NAME = b"leakscope"
_HEADER = re.compile(rb"^\s*(\[\[?\s*)?tool\s*\.\s*[\"']?leakscope\b", re.MULTILINE)
"""By which a file that is no TOML is known to be meant for leakscope too."""
_MOST_BYTES = 1 << 20
"""A file that is larger was written by no person."""


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

    A file that can't be read is told in the section's remarks, and costs nothing else: a broken
    ``pyproject.toml`` must not keep anybody from training.
    """
    for folder in (start, *start.parents):
        path = folder / FILE
        text = _read(path)
        section = None if text is None or _NAME not in text else _parse(path, text)
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
    """Return a file's section; None where it has none, as far as can be told of a broken one."""
    is_meant = _HEADER.search(text) is not None
    try:
        table = read_toml(text.decode()).get("tool", {}).get("leakscope")
    except ImportError:
        sentence = f"{path} is not read: Python 3.10 has no TOML reader; install tomli."
        return Section(path, remarks=[sentence]) if is_meant else None
    except (ValueError, AttributeError, RecursionError) as fault:
        sentence = f"{path} is not read: {one_line(str(fault))}."
        return Section(path, remarks=[sentence]) if is_meant else None
    if table is None:
        return None
    if not isinstance(table, dict):
        return Section(path, remarks=[f"tool.leakscope in {path} is not read: it is no table."])
    return Section(path, table)
