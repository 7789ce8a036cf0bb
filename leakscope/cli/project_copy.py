"""A copy of the user's project, to which a diff is applied; the user's files stay as they are.

Small files are copied, so that a program which writes over them writes into the copy. Large ones
are links to the user's, for they are data as a rule. What version control, environments and caches
keep is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leakscope.model.errors import LeakscopeError

LINKED_FROM = 32 << 20
"""Bytes of a file from which it is linked, not copied."""
MOST_COPIED = 2 << 30
"""Bytes of all copied files: more is a folder that holds more than a project."""
_LEFT_OUT = frozenset(
    {".git", ".hg", ".svn", ".tox", ".nox", "__pycache__", "node_modules", "leakscope-runs"}
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class NoCopyError(LeakscopeError):
    """The project can't be copied, or the diff doesn't fit its files."""


@dataclass
class ProjectCopy:
    """A project's folder and its copy."""

    project: Path
    copy: Path
    linked: list[Path] = field(default_factory=list)
    """Files and folders that are links to the user's, relative to the project."""

    def path(self, path: Path) -> Path:
        """Return where a path of the project lies in the copy; a path elsewhere is unchanged."""
        whole = Path(os.path.abspath(path))  # noqa: PTH100  # keeps links as the user wrote them
        for candidate in (whole, whole.parent.resolve() / whole.name):
            if candidate.is_relative_to(self.project):
                return self.copy / candidate.relative_to(self.project)
        return path

    def was_imported(self, file: str) -> bool | None:
        """Return whether Python compiled a module of the copy; None where it keeps no such files.

        Args:
            file: The module's path below the project.

        """
        if os.environ.get("PYTHONDONTWRITEBYTECODE") or sys.pycache_prefix:
            return None
        cache = (self.copy / file).parent / "__pycache__"
        return any(cache.glob(f"{Path(file).stem}.*.pyc"))

    def search_path(self, files: Sequence[str]) -> str:
        """Return a ``PYTHONPATH`` by which changed modules are found before installed ones."""
        folders = [str(_import_root(self.copy / file)) for file in files]
        given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        mapped = [str(self.path(Path(entry))) for entry in given]
        return os.pathsep.join(dict.fromkeys([*folders, *mapped]))


def copy_project(project: Path, destination: Path) -> ProjectCopy:
    """Copy a project into an empty folder.

    Raises:
        NoCopyError: it is too large, or can't be read or written.

    """
    copied = ProjectCopy(project.resolve(), destination.resolve())
    total = 0
    try:
        for source in _entries(copied.project):
            target = copied.copy / source.relative_to(copied.project)
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            size = source.stat().st_size
            if size >= LINKED_FROM:
                target.symlink_to(source)
                copied.linked.append(source.relative_to(copied.project))
                continue
            total += size
            if total > MOST_COPIED:
                raise NoCopyError(
                    f"{project} holds more than {MOST_COPIED >> 30} GiB of small files; name the "
                    "folder of the program alone with --project.",
                    slug="no-copy",
                )
            shutil.copy2(source, target)
    except OSError as fault:
        raise NoCopyError(
            f"{project} can't be copied ({fault.strerror or fault}); TMPDIR chooses another place "
            "for the copy.",
            slug="no-copy",
        ) from fault
    return copied


def apply_diff(folder: Path, diff: str) -> list[str]:
    """Apply a unified diff to the files below a folder; return their paths relative to it.

    Lines must be as the diff has them: nothing is moved or guessed.

    Raises:
        NoCopyError: a file is missing or was changed since; no file of it is written then.

    """
    changed = {name: _applied(folder, name, hunks) for name, hunks in _files_of(diff).items()}
    for name, text in changed.items():
        (folder / name).write_bytes(text.encode())
    return [*changed]


def _entries(project: Path) -> Iterator[Path]:
    """Yield folders before what they hold; each once, however many links lead to it."""
    seen = {project}
    for place, folders, files in os.walk(project, followlinks=True):
        kept = []
        for name in sorted(folders):
            folder = Path(place, name)
            is_environment = (folder / "pyvenv.cfg").exists()
            if name in _LEFT_OUT or is_environment or (real := folder.resolve()) in seen:
                continue
            seen.add(real)
            kept.append(name)
            yield folder
        folders[:] = kept
        yield from (path for name in sorted(files) if (path := Path(place, name)).is_file())


def _import_root(module: Path) -> Path:
    """Return the folder from which a module is imported: the first above it that is no package."""
    folder = module.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


@dataclass
class _Hunk:
    start: int
    """Index of the first line that it replaces."""
    counts: tuple[int, int]
    """How many lines it has of the file before and after."""
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return (len(self.before), len(self.after)) == self.counts


def _files_of(diff: str) -> dict[str, list[_Hunk]]:
    """Return the files that a diff changes, and how."""
    files: dict[str, list[_Hunk]] = {}
    hunks: list[_Hunk] = []
    last: tuple[list[str], ...] = ()
    for line in _LINE.findall(diff if diff.endswith("\n") else f"{diff}\n"):
        if line.startswith("\\"):  # "No newline at end of file"
            for lines in last:
                lines[-1] = lines[-1].removesuffix("\n")
        elif hunks and not hunks[-1].is_complete:
            hunk = hunks[-1]
            last = {"-": (hunk.before,), "+": (hunk.after,)}.get(line[0], (hunk.before, hunk.after))
            for lines in last:
                lines.append(line[1:])
        elif line.startswith("--- "):
            hunks = files.setdefault(line[4:].strip().removeprefix("a/"), [])
        elif match := _HUNK.match(line):
            before, after = int(match[2] or 1), int(match[4] or 1)
            hunks.append(_Hunk(int(match[1]) - (before > 0), (before, after)))
    return files


def _applied(folder: Path, name: str, hunks: Sequence[_Hunk]) -> str:
    try:
        lines: list[str] = _LINE.findall((folder / name).read_bytes().decode())
    except (OSError, UnicodeDecodeError) as fault:
        raise NoCopyError(
            f"{name} can't be read in {folder}; --project names the folder that the run's paths "
            "are relative to.",
            slug="no-copy",
        ) from fault
    for hunk in reversed(hunks):
        end = hunk.start + len(hunk.before)
        if lines[hunk.start : end] != hunk.before:
            raise NoCopyError(
                f"{name} has changed since the run was recorded; record it once more.",
                slug="no-copy",
            )
        lines[hunk.start : end] = hunk.after
    return "".join(lines)
