"""The runs in a directory: of each what its report says, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from leakscope.cli.conclusion import HTML, JSON
from leakscope.model.errors import NoRunError
from leakscope.model.runs import ListedRun, RunList, Standing
from leakscope.recording.directory import OUTCOME, holds_run, journals, read_manifest
from leakscope.recording.liveness import folder_goes_on
from leakscope.recording.sketching import is_readable
from leakscope.report.runs.reading import UnreadableReportError, read_listed
from leakscope.report.runs.words import WORST_FIRST

ORDERS: dict[str, Callable[[ListedRun], Any]] = {
    "newest": lambda run: -run.created,
    "name": lambda run: run.name,
    "verdict": lambda run: (
        WORST_FIRST.index(run.verdict) if run.verdict else len(WORST_FIRST),
        -run.created,
    ),
    "growth": lambda run: -(run.growth_bytes_per_unit or 0.0),
    "peak": lambda run: -(run.peak_bytes or 0.0),
    "duration": lambda run: -(run.duration_s or 0.0),
}
"""In which orders runs can be listed; the first is the usual one."""


def list_runs(directory: Path, order: str = "newest") -> RunList:
    """Return the runs in a directory.

    Raises:
        NoRunError: there is no such directory, it is a run itself, or it can't be read.

    """
    try:
        _require_shelf(directory)
        folders = [one for one in sorted(directory.iterdir()) if _is_folder(one)]
        listed = {folder: _listed(folder) for folder in folders}
    except OSError as fault:
        reason = fault.strerror or fault
        raise NoRunError(f"{directory} can't be read: {reason}.", slug="no-run") from fault
    return RunList(
        directory=str(directory),
        runs=sorted((run for run in listed.values() if run is not None), key=ORDERS[order]),
        others=[folder.name for folder, run in listed.items() if run is None],
    )


def _require_shelf(directory: Path) -> None:
    if not directory.exists():
        raise NoRunError(
            f"{directory} does not exist. Record a run with `leakscope run train.py`, or name the "
            "folder that holds your runs.",
            slug="no-run",
        )
    if not directory.is_dir():
        raise NoRunError(f"{directory} is a file. Name the folder that holds runs.", slug="no-run")
    if holds_run(directory):
        raise NoRunError(
            f"{directory} is a run itself: `leakscope report {directory}` makes its report. "
            f"{directory.absolute().parent} lists it beside others.",
            slug="no-run",
        )


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _listed(folder: Path) -> ListedRun | None:
    """Return what is said of a folder; None where it holds no run."""
    report = folder / JSON
    page = str(folder / HTML) if (folder / HTML).is_file() else ""
    try:
        is_run = holds_run(folder)
        if is_run and _is_written_still(folder, report):
            return _without_report(folder, page)
        if report.is_file():
            return read_listed(report, name=folder.name, path=str(folder), page=page)
        return _without_report(folder, page) if is_run else None
    except UnreadableReportError as fault:
        mended = f" {_what_to_do(folder, 'makes it anew')}" if is_run else ""
        return _bare(folder, page, Standing.UNREADABLE, f"{JSON} {fault}.{mended}")
    except OSError as fault:
        reason = fault.strerror or fault
        return _bare(folder, page, Standing.UNREADABLE, f"The folder can't be read: {reason}.")


def _is_written_still(folder: Path, report: Path) -> bool:
    """Return whether a journal may have grown since the report was made."""
    if (folder / OUTCOME).exists():
        return False
    made = report.stat().st_mtime if report.is_file() else 0.0
    newest = max((journal.stat().st_mtime for journal in journals(folder)), default=0.0)
    return newest > made and folder_goes_on(folder) is not False


def _without_report(folder: Path, page: str) -> ListedRun:
    goes_on = folder_goes_on(folder)
    if goes_on:
        remark = f"`leakscope show {folder}` tells where it stands."
        return _bare(folder, page, Standing.RUNNING, remark)
    remark = _what_to_do(folder, "makes its report")
    if goes_on is None:
        remark = f"It may still be running on another machine. {remark}"
    return _bare(folder, page, Standing.UNREPORTED, remark)


def _what_to_do(folder: Path, report_does: str) -> str:
    if not is_readable(folder):
        return "Nothing in it can be read: record again."
    return f"`leakscope report {folder}` {report_does}."


def _bare(folder: Path, page: str, standing: Standing, remark: str) -> ListedRun:
    manifest = read_manifest(folder)
    return ListedRun(
        name=folder.name,
        path=str(folder),
        standing=standing,
        remark=remark,
        page=page,
        script=manifest.script if manifest else "",
        created=manifest.created if manifest else 0.0,
    )
