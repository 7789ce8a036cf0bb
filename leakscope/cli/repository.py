"""Where the repository begins: the formats of CI want paths that are relative to its root."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from leakscope.model.report import Culprit, Finding, Report

S = TypeVar("S", Culprit, Finding)


@dataclass(frozen=True)
class Repository:
    """A repository's root, and the folder that a run's paths are relative to."""

    root: Path
    project_root: Path | None = None

    def place(self, place: str) -> str:
        """Return ``src/train.py:12`` relative to the root; as it is where it lies elsewhere."""
        file, _, line = place.rpartition(":")
        if not file or not line.isdigit():
            return self._relative(place)
        return f"{self._relative(file)}:{line}"

    def file(self, path: str) -> str:
        """Return a file's path relative to the root; empty where it is no file in there."""
        relative = self._relative(path)
        try:
            return relative if path and (self.root / relative).is_file() else ""
        except (OSError, ValueError):
            return ""

    def _relative(self, path: str) -> str:
        try:
            for base in (self.project_root, self.root):
                full = Path(os.path.normpath(base / path)) if base is not None else None
                if full is not None and full.is_relative_to(self.root) and full.is_file():
                    return full.relative_to(self.root).as_posix()
        except (OSError, ValueError):
            return path
        return path


def find_repository(start: Path, project_root: str = "") -> Repository:
    """Return the repository around a folder, or the folder itself where there is none.

    Args:
        start: The working directory.
        project_root: The folder that the paths of a run are relative to, where it is known.

    """
    folder = Path(os.path.realpath(start))
    root = next((f for f in (folder, *folder.parents) if (f / ".git").exists()), folder)
    project = Path(os.path.realpath(project_root)) if project_root else None
    return Repository(root, project)


def localised(report: Report, repository: Repository) -> Report:
    """Return the report with the places of all that grows relative to the repository's root."""
    return msgspec.structs.replace(
        report,
        culprits=[_localised(culprit, repository) for culprit in report.culprits],
        findings=[_localised(finding, repository) for finding in report.findings],
    )


def _localised(suspect: S, repository: Repository) -> S:
    defined = suspect.defined_at
    return msgspec.structs.replace(
        suspect,
        fed_at=[repository.place(place) for place in suspect.fed_at],
        allocated_at=[repository.place(place) for place in suspect.allocated_at],
        defined_at=None if defined is None else repository.place(defined),
    )
