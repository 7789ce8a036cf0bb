"""``leakscope verify``: does an offered remedy free what grows?

Applies the diffs in a copy of the project, runs the command there under ``leakscope run``, and
compares both runs. The user's own files are never written.

Small files are copied, so that a program which writes over them writes into the copy. Large ones
are links to the user's, for they are data as a rule. What version control, environments and caches
keep is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leakscope.cli.output import PLACE, exit_codes, notify, run_directory_options, write_text
from leakscope.cli.program import split_command_line
from leakscope.cli.report import conclude
from leakscope.configuration import BY_NAME
from leakscope.model.errors import EXIT_OK, EXIT_THRESHOLD, LeakscopeError, NoRunError
from leakscope.model.record import VERIFY_FOLDER
from leakscope.recording import open_run
from leakscope.recording.directory import REDACTED, find_run, holds_run, read_manifest

if TYPE_CHECKING:
    from leakscope.capture.run_directory import Program
    from leakscope.model.comparison import CulpritChange
    from leakscope.model.record import RunManifest
    from leakscope.model.report import Culprit, Report

_SAME_SETTINGS = (
    "budget", "max-pause", "max-recording", "tracemalloc",
    "native", "native-interval", "workers", "children",
)  # fmt: skip
"""Settings of the first run that the second gets too, so that both are measured alike."""
_EPILOG = """\b
Examples:
  leakscope verify leakscope-runs/20250101-120000-train
  leakscope verify runs/before --remedy 2 --remedy 3
  leakscope verify runs/before -- train.py --epochs 5

\b
Without COMMAND the command of RUN is run again, from this folder. RUN/remedy-N.patch is the diff:
`patch -p1 < RUN/remedy-N.patch` applies it for good.
""" + exit_codes(
    "fixed: what grew no longer does",
    "nothing was verified: no such run or remedy, the diff doesn't fit, the program failed",
    "not fixed, or the second run can't show that it is; an invalid command line",
)


class RemedyOutcome(Enum):
    """What a remedy did."""

    FIXED = "fixed"
    REDUCED = "reduced, not fixed"
    NOT_FIXED = "not fixed"
    UNPROVEN = "unproven"


@dataclass(frozen=True)
class RemedyTrial:
    """A remedy that was tried."""

    outcome: RemedyOutcome
    text: str
    """What became of the culprit, as the comparison says it."""


class NotVerifiedError(LeakscopeError):
    """A remedy couldn't be tried."""


@click.command(epilog=_EPILOG)
@click.option(
    "--remedy",
    "numbers",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Number in the report of the culprit whose diff is tried; may be given more than once "
    "[default: the first that has a diff].",
)
@run_directory_options("Run directory of the second run [default: RUN-remedy-N].")
@click.option(
    "--project",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder to copy [default: the project of the run].",
)
@click.argument("run", type=PLACE)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def verify(
    run: Path,
    *,
    command: tuple[str, ...],
    numbers: tuple[int, ...],
    out: Path | None,
    project: Path | None,
    force: bool,
) -> int:
    """Try a remedy of RUN in a copy of the project.

    The diff is applied there, COMMAND is run, and both runs are compared.
    """
    before = find_run(run)
    report = conclude(before)
    chosen = _chosen(report, numbers)
    manifest = read_manifest(before)
    if manifest is None:
        raise NoRunError(f"{run} has no manifest that says what was run.")
    program = _program(manifest, command)
    label = "-".join(str(number) for number, _ in chosen)
    after = out or before.with_name(f"{before.name}-remedy-{label}")
    patch = before / f"remedy-{label}.patch"
    diffs = [f"{(culprit.remedy.diff or '').rstrip()}\n" for _, culprit in chosen]
    with tempfile.TemporaryDirectory(prefix=VERIFY_FOLDER) as scratch:
        copy = copy_project(project or Path(manifest.project_root), Path(scratch, "project"))
        changed = list[str]()
        for diff in diffs:
            changed += apply_diff(copy.copy, diff)
        write_text(patch, "".join(diffs))
        _announce(chosen, copy, program)
        _run_again(copy, program, changed, before, after, manifest.options, force=force)
    trials = judge(report, conclude(after), chosen)
    for trial in trials:
        notify(f"{trial.outcome.value}: {trial.text}")
    notify(f"second run in {after}; the diff is {patch}.")
    is_fixed = all(trial.outcome is RemedyOutcome.FIXED for trial in trials)
    return EXIT_OK if is_fixed else EXIT_THRESHOLD


def judge(
    before: Report, after: Report, chosen: Sequence[tuple[int, Culprit]]
) -> list[RemedyTrial]:
    """Return what became of culprits whose remedies were applied between two runs."""
    from leakscope.analysis import compare

    changes = {change.signature: change for change in compare(before, after).culprits}
    return [_trial(culprit, changes.get(culprit.signature)) for _, culprit in chosen]


def _trial(culprit: Culprit, change: CulpritChange | None) -> RemedyTrial:
    from leakscope.model.comparison import ChangeKind

    if change is None:
        text = f"{culprit.name} is in neither run's comparison."
        return RemedyTrial(RemedyOutcome.UNPROVEN, text)
    outcomes = {ChangeKind.FIXED: RemedyOutcome.FIXED, ChangeKind.REDUCED: RemedyOutcome.REDUCED}
    outcome = outcomes.get(change.change, RemedyOutcome.NOT_FIXED)
    if outcome is RemedyOutcome.FIXED and (change.is_unproven or change.is_elsewhere):
        outcome = RemedyOutcome.UNPROVEN
    return RemedyTrial(outcome, change.text)


def _chosen(report: Report, numbers: Sequence[int]) -> list[tuple[int, Culprit]]:
    """Return the culprits whose diffs are to be tried, with their ranks."""
    ranked = list(enumerate(report.culprits, 1))
    with_diff = [number for number, culprit in ranked if culprit.remedy.diff]
    if not ranked:
        raise NotVerifiedError(f"Nothing to verify: {report.headline}")
    if not numbers and not with_diff:
        raise NotVerifiedError(
            "No culprit of this run has a diff; change the program by its remedy in words, run it "
            "again, and use `leakscope compare`."
        )
    wanted = list(dict.fromkeys(numbers)) or with_diff[:1]
    for number in wanted:
        if number not in with_diff:
            known = ", ".join(map(str, with_diff)) or "none"
            raise NotVerifiedError(f"Culprit {number} has no diff; those that have one: {known}.")
    return [ranked[number - 1] for number in wanted]


def _program(manifest: RunManifest, command: Sequence[str]) -> Program:
    """Return what to run: the given command, with or without ``python``, else the run's own."""
    words = list(command or manifest.command)
    if words and Path(words[0]).name.startswith("python"):
        del words[0]
    # The interpreter's own options come before the program; it is run with those of this process.
    _, program = split_command_line(words, {"-W", "-X", "--check-hash-based-pycs"})
    if program is None or REDACTED in words or program.kind == "stdin":
        raise NotVerifiedError(
            f"The run's command ({' '.join(words) or 'unknown'}) can't be run again as it was "
            "recorded; give it after the run: leakscope verify RUN -- train.py ..."
        )
    if program.kind == "script" and not Path(program.filename).exists():
        raise NotVerifiedError(
            f"There is no {program.target} in this folder; run verify where the run was started, "
            "or give the command after it: leakscope verify RUN -- train.py ..."
        )
    return program


def _announce(chosen: Sequence[tuple[int, Culprit]], copy: ProjectCopy, program: Program) -> None:
    for number, culprit in chosen:
        notify(f"remedy {number} ({culprit.remedy.title}) is applied in a copy of {copy.project}.")
    if copy.linked:
        names = ", ".join(map(str, copy.linked[:3]))
        notify(f"not copied but linked, for their size: {names}{', …' if copy.linked[3:] else ''}.")
    notify(f"running python {' '.join(program.arguments)}")


def _run_again(
    copy: ProjectCopy,
    program: Program,
    changed: Sequence[str],
    before: Path,
    after: Path,
    options: dict[str, Any],
    *,
    force: bool,
) -> None:
    """Run the program in the copy, recorded like the first run.

    Raises:
        NotVerifiedError: that says nothing of the remedy: it failed, or ran other files.

    """
    same = [
        word
        for name in _SAME_SETTINGS
        if (value := options.get(BY_NAME[name].option)) is not None
        for word in (f"--{name}", str(value))
    ]
    arguments = list(program.arguments)
    script = copy.path(Path(program.target)) if program.kind == "script" else None
    if script is not None:
        arguments[0] = str(script)
    recorder = [sys.executable, "-m", "leakscope", "run", "--quiet", "--out", str(after.absolute())]
    environment = os.environ | {"PYTHONPATH": copy.search_path(changed)}
    ended = subprocess.run(
        [*recorder, *(["--force"] if force else []), *same, *arguments],
        cwd=copy.path(Path.cwd()),
        env=environment,
        check=False,
    )
    if ended.returncode and not open_run(before).outcome.get("exit_code"):
        raise NotVerifiedError(
            f"With the remedy the program ended with exit code {ended.returncode}, so nothing was "
            f"verified; its run is {after}."
        )
    for file in changed:
        is_script = script is not None and script.resolve() == (copy.copy / file).resolve()
        if not is_script and copy.was_imported(file) is False:
            raise NotVerifiedError(
                f"The program didn't import the changed {file} but another copy of it, or none; "
                "nothing was verified."
            )


# The copy of the project

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
        """Return whether Python compiled a module of the copy; None where that leaves no file."""
        if os.environ.get("PYTHONDONTWRITEBYTECODE") or sys.pycache_prefix:
            return None
        cache = (self.copy / file).parent / "__pycache__"
        return any(cache.glob(f"{Path(file).stem}.*.pyc"))

    def search_path(self, files: Sequence[str]) -> str:
        """Return a ``PYTHONPATH`` by which changed modules are found before installed ones."""
        folders = [str(_import_root(self.copy / file)) for file in files]
        entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        mapped = [str(self.path(Path(entry))) for entry in entries]
        return os.pathsep.join(dict.fromkeys([*folders, *mapped]))


def copy_project(project: Path, destination: Path) -> ProjectCopy:
    """Copy a project into a folder, made where there is none.

    Raises:
        NoCopyError: it is too large, or can't be read or written.

    """
    copied = ProjectCopy(project.resolve(), destination.resolve())
    total = 0
    try:
        copied.copy.mkdir(parents=True, exist_ok=True)
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
                    "folder of the program alone with --project."
                )
            shutil.copy2(source, target)
    except OSError as fault:
        raise NoCopyError(
            f"{project} can't be copied ({fault.strerror or fault}); TMPDIR chooses another place "
            "for the copy."
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
            is_left_out = name in _LEFT_OUT or is_environment or holds_run(folder)
            if is_left_out or (real := folder.resolve()) in seen:
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
class _DiffHunk:
    start: int
    """Index of the first line that it replaces."""
    counts: tuple[int, int]
    """How many lines it has of the file before and after."""
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return (len(self.before), len(self.after)) == self.counts


def _files_of(diff: str) -> dict[str, list[_DiffHunk]]:
    """Return the files that a diff changes, and how."""
    files: dict[str, list[_DiffHunk]] = {}
    hunks: list[_DiffHunk] = []
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
            hunks.append(_DiffHunk(int(match[1]) - (before > 0), (before, after)))
    return files


def _applied(folder: Path, name: str, hunks: Sequence[_DiffHunk]) -> str:
    try:
        lines: list[str] = _LINE.findall((folder / name).read_bytes().decode())
    except (OSError, UnicodeDecodeError) as fault:
        raise NoCopyError(
            f"{name} can't be read in {folder}; --project names the folder that the run's paths "
            "are relative to."
        ) from fault
    for hunk in reversed(hunks):
        end = hunk.start + len(hunk.before)
        if lines[hunk.start : end] != hunk.before:
            raise NoCopyError(
                f"{name} has changed since the run was recorded; record it once more."
            )
        lines[hunk.start : end] = hunk.after
    return "".join(lines)
