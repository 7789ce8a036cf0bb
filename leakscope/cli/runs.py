"""``leakscope runs``: all runs below a directory, with verdicts and sparklines."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import click

from leakscope.cli.output import (
    format_of,
    format_option,
    is_stdout,
    out_option,
    shows_color,
    terminal_width,
    write_output,
)
from leakscope.cli.report import HTML, JSON
from leakscope.model.documents import ListedRun, RunList, RunStatus
from leakscope.model.errors import NoRunError
from leakscope.recording.directory import OUTCOME, holds_run, journals, read_manifest
from leakscope.recording.following import folder_goes_on
from leakscope.recording.reader import is_readable
from leakscope.report.run_index import UnreadableReportError, comparisons_in, read_listed
from leakscope.report.runs import WORST_FIRST

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
DEEPEST = 2
"""So many folders down runs are looked for below those of the directory itself."""
MOST_ENTRIES = 1000
"""A folder that holds more is no shelf of runs: a dataset, as a rule."""
MOST_FOLDERS = 2000
"""So many folders that hold no run are looked into."""


def list_runs(directory: Path, order: str = "newest") -> RunList:
    """Return the runs in a directory.

    Raises:
        NoRunError: there is no such directory, it is a run itself, or it can't be read.

    """
    try:
        _require_shelf(directory)
        shelf = _Shelf(directory)
        for folder in sorted(filter(_is_folder, directory.iterdir())):
            shelf.look_into(folder, DEEPEST)
    except OSError as fault:
        reason = fault.strerror or fault
        raise NoRunError(f"{directory} can't be read: {reason}.", slug="no-run") from fault
    return RunList(
        directory=str(directory),
        runs=sorted(shelf.runs, key=ORDERS[order]),
        others=shelf.others,
        links=comparisons_in([directory, *shelf.folders]),
    )


class _Shelf:
    """What is found below a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runs: list[ListedRun] = []
        self.others: list[str] = []
        """Folders of the directory that hold no run, nor does any below them."""
        self.folders: list[Path] = []
        """Folders that hold folders of runs."""
        self._left = MOST_FOLDERS

    def look_into(self, folder: Path, deeper: int) -> None:
        """Take the run that a folder holds, else those below it."""
        run = _listed(folder, str(folder.relative_to(self.directory)))
        if run is not None:
            self.runs.append(run)
            return
        known = len(self.runs)
        if deeper and self._left > 0:
            self._left -= 1
            for below in _folders_in(folder):
                self.look_into(below, deeper - 1)
        if len(self.runs) > known:
            self.folders.append(folder)
        elif folder.parent == self.directory:
            self.others.append(folder.name)


def _folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder; none of what can't be read or is a dataset, nor links."""
    try:
        with os.scandir(folder) as entries:
            found = list(islice(entries, MOST_ENTRIES + 1))
    except OSError:
        return []
    if len(found) > MOST_ENTRIES:
        return []
    kept = [e for e in found if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    return sorted(folder / entry.name for entry in kept)


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


def _listed(folder: Path, name: str) -> ListedRun | None:
    """Return what is said of a folder; None where it holds no run."""
    report = folder / JSON
    page = str(folder / HTML) if (folder / HTML).is_file() else ""
    try:
        is_run = holds_run(folder)
        if is_run and _is_written_still(folder, report):
            return _without_report(folder, name, page)
        if report.is_file():
            return read_listed(report, name=name, path=str(folder), page=page)
        return _without_report(folder, name, page) if is_run else None
    except UnreadableReportError as fault:
        mended = f" {_what_to_do(folder, 'makes it anew')}" if is_run else ""
        return _bare(folder, name, page, RunStatus.UNREADABLE, f"{JSON} {fault}.{mended}")
    except OSError as fault:
        reason = fault.strerror or fault
        return _bare(
            folder, name, page, RunStatus.UNREADABLE, f"The folder can't be read: {reason}."
        )


def _is_written_still(folder: Path, report: Path) -> bool:
    """Return whether a journal may have grown since the report was made."""
    if (folder / OUTCOME).exists():
        return False
    made = report.stat().st_mtime if report.is_file() else 0.0
    newest = max((journal.stat().st_mtime for journal in journals(folder)), default=0.0)
    return newest > made and folder_goes_on(folder) is not False


def _without_report(folder: Path, name: str, page: str) -> ListedRun:
    goes_on = folder_goes_on(folder)
    if goes_on:
        remark = f"`leakscope show {folder}` tells where it stands."
        return _bare(folder, name, page, RunStatus.RUNNING, remark)
    remark = _what_to_do(folder, "makes its report")
    if goes_on is None:
        remark = f"It may still be running on another machine. {remark}"
    return _bare(folder, name, page, RunStatus.UNREPORTED, remark)


def _what_to_do(folder: Path, report_does: str) -> str:
    if not is_readable(folder):
        return "Nothing in it can be read: record again."
    return f"`leakscope report {folder}` {report_does}."


def _bare(folder: Path, name: str, page: str, standing: RunStatus, remark: str) -> ListedRun:
    manifest = read_manifest(folder)
    return ListedRun(
        name=name,
        path=str(folder),
        standing=standing,
        remark=remark,
        page=page,
        script=manifest.script if manifest else "",
        created=manifest.created if manifest else 0.0,
    )


_EPILOG = """\b
Examples:
  leakscope runs                                     those in leakscope-runs, newest first
  leakscope runs /data/runs --sort verdict           the worst first
  leakscope runs --out leakscope-runs/index.html     a page that links their reports

\b
Runs up to two folders further down are listed too, and comparison pages beside them.
What a run's report.json says is taken as it stands; runs without one, and runs in progress, say so.

\b
Exit codes:
  0  listed, also where there is no run yet
  1  DIRECTORY can't be read, or is a run itself
  2  a command line that makes no sense
"""


@click.command(epilog=_EPILOG)
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@format_option("text")
@out_option()
@click.option(
    "--sort",
    "order",
    type=click.Choice(list(ORDERS)),
    default="newest",
    show_default=True,
    help="What comes first; of amounts the largest.",
)
def runs(directory: Path | None, *, form: str | None, out: Path | None, order: str) -> None:
    """List the runs in DIRECTORY with their verdicts, lead culprits and memory.

    Without DIRECTORY it is the folder in which `leakscope run` makes runs.
    """
    form = form or format_of(out, "text")
    listed = list_runs(directory, order) if directory else _in_usual_directory(order)
    write_output(_rendered(listed, form, out), out)
    if not is_stdout(out):
        from leakscope.report.runs import summary_of

        click.echo(f"leakscope: {summary_of(listed.runs)}\nleakscope: list in {out}")


def _in_usual_directory(order: str) -> RunList:
    """List what ``leakscope run`` has made so far: where it made nothing, there is no run yet."""
    from leakscope.configuration import read_configuration
    from leakscope.model.documents import RunList

    directory = read_configuration().value("runs")
    assert isinstance(directory, Path)
    if not directory.exists():
        return RunList(directory=str(directory), runs=[])
    return list_runs(directory, order)


def _rendered(listed: RunList, form: str, out: Path | None) -> str:
    from leakscope.report import render_runs_html, render_runs_json, render_runs_text

    if form == "html":
        beside = Path(listed.directory) if is_stdout(out) or out is None else out.parent
        return render_runs_html([listed], beside=beside)
    if form == "json":
        return render_runs_json(listed)
    return render_runs_text(listed, width=terminal_width(100), color=shows_color(out))
