"""Merging: the recordings of several directories, ranks of one training, in one directory."""

from __future__ import annotations

import errno
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

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
        LeakscopeError: two of them recorded the same rank, or none is named.

    """
    folders = [find_run(path) for path in paths]
    runs = [open_headers(folder) for folder in folders]
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
