"""Merging: the recordings of several directories, ranks of one training, in one directory."""

from __future__ import annotations

import errno
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePath

from leakscope.model.errors import LeakscopeError, UnwritableError
from leakscope.model.run import Run
from leakscope.recording.directory import RunDirectory, find_run, journals, rank_outcomes
from leakscope.recording.reader import open_headers


def merge_runs(paths: Sequence[Path], out: Path, *, force: bool = False) -> RunDirectory:
    """Return a new run directory with the recordings of all; those merged stay as they are.

    What was started, and how it ended, is taken from the one that has rank 0.

    Raises:
        NoRunError: one of the paths is no run.
        RunExistsError: ``out`` holds a run already and ``force`` is not set.
        UnwritableError: it can't be made.
        LeakscopeError: there is one alone, two of them recorded the same rank, or they are no parts
            of one training.

    """
    folders = [find_run(path) for path in paths]
    runs = [open_headers(folder) for folder in folders]
    _refuse_one_alone(runs)
    _refuse_strangers(runs)
    _refuse_two_of_a_rank(runs)
    first = min(runs, key=lambda run: run.main.header.rank)
    target = RunDirectory.create(out, first.manifest, force=force)
    for folder in folders:
        for journal in journals(folder):
            _copy(journal, _unused(target.path, journal.name))
        for outcome in rank_outcomes(folder):
            _copy(outcome, target.path / outcome.name)
    if first.outcome:
        target.write_outcome(first.outcome)
    return target


def _refuse_one_alone(runs: list[Run]) -> None:
    if len(runs) < 2:
        raise LeakscopeError(
            f"There is nothing to merge with {runs[0].path}: name the directories of all machines."
            if runs
            else "There is nothing to merge: name the directories of all machines.",
            slug="nothing-to-merge",
        )


def _refuse_strangers(runs: list[Run]) -> None:
    """Refuse runs that are no parts of one training, as far as they tell what they are of."""
    first, *others = runs
    for other in others:
        for what, one, another in zip(_TRAITS, _traits(first), _traits(other), strict=True):
            if one and another and one != another:
                raise LeakscopeError(
                    f"{first.path} and {other.path} don't belong together: {what} is {one} in the "
                    f"first, {another} in the second.",
                    slug="not-together",
                )


_TRAITS = ("the script", "the number of ranks", "the launch")
_OF_A_MACHINE = ("started by ", "spawned ")
"""What a launch is called where only the machine's own processes tell of it."""


def _traits(run: Run) -> tuple[str, str, str]:
    """Return what the parts of a training have in common, each empty where it isn't known."""
    launch = run.manifest.launch
    sizes = {one.header.world_size for one in run.recordings if one.header.worker is None}
    return (
        PurePath(run.manifest.script).name,
        str(max(sizes)) if sizes else "",
        "" if launch.startswith(_OF_A_MACHINE) else launch,
    )


def _refuse_two_of_a_rank(runs: list[Run]) -> None:
    folders: dict[tuple[int, int], list[str]] = defaultdict(list)
    for run in runs:
        ranks = [r.header for r in run.recordings if r.header.worker is None]
        for attempt, rank in {(header.attempt, header.rank) for header in ranks}:
            folders[attempt, rank].append(str(run.path))
    for (_, rank), places in folders.items():
        if len(places) > 1:
            raise LeakscopeError(
                f"{places[0]} and {places[1]} both recorded rank {rank}: they are two runs, and "
                "leakscope compare tells how they differ.",
                slug="two-of-a-rank",
            )


def _unused(folder: Path, name: str) -> Path:
    """Return a path for a journal; processes of different machines may have the same number."""
    path, number = folder / name, 1
    while path.exists():
        number += 1
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    return path


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as fault:
        reason = "the disk is full" if fault.errno == errno.ENOSPC else fault.strerror or str(fault)
        raise UnwritableError(f"{target} can't be written: {reason}.", slug="unwritable") from fault
