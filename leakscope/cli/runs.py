"""Run directories: all that lie below a directory, where one stands, and one out of several.

``leakscope runs``, ``show`` and ``merge``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leakscope.cli.output import (
    format_of,
    format_option,
    is_stdout,
    out_option,
    print_text,
    shows_color,
    terminal_width,
    wants_color,
    write_output,
)
from leakscope.cli.report import HTML, JSON
from leakscope.model.documents import ListedRun, RunList, RunStatus
from leakscope.model.errors import NoRunError
from leakscope.recording.directory import OUTCOME, holds_run, journals, read_manifest
from leakscope.recording.following import folder_goes_on
from leakscope.recording.reader import is_readable
from leakscope.report.run_index import UnreadableReportError, comparisons_in, read_listed
from leakscope.report.runs import WORST_FIRST, histories_of

if TYPE_CHECKING:
    from leakscope.model.run import Run

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
        require_shelf(directory)
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
        histories=histories_of(shelf.runs),
        links=comparisons_in([directory, *shelf.folders]),
    )


def require_shelf(directory: Path) -> None:
    """Refuse what is no folder of runs.

    Raises:
        NoRunError: there is no such directory, or it is a run itself.

    """
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


_EPILOG_OF_RUNS = """\b
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


@click.command(epilog=_EPILOG_OF_RUNS)
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
        return render_runs_html([listed], folder=beside)
    if form == "json":
        return render_runs_json(listed)
    return render_runs_text(listed, width=terminal_width(100), color=shows_color(out))


_EPILOG_OF_SHOW = """\b
Examples:
  leakscope show RUN                  where it stands now
  leakscope show RUN --follow         again and again, until the run ends or Ctrl-C

\b
It reads the recording and nothing else: the training doesn't notice. Ctrl-C ends the showing.

\b
Exit codes:
  0  shown
  1  RUN is no run
  2  a command line that makes no sense
"""
_HOME = "\x1b[H\x1b[J"
"""Goes to the top of the terminal and clears what is below."""


@click.command(epilog=_EPILOG_OF_SHOW)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--follow", "-f", is_flag=True, help="Show it again and again until the run ends.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.5),
    default=5.0,
    show_default=True,
    help="Seconds from one look to the next.",
)
def show(run: Path, *, follow: bool, interval: float) -> None:
    """Show where RUN stands: memory over time, what grows, when it runs out, what it costs."""
    from leakscope.recording.directory import find_run

    folder = find_run(run)
    with contextlib.suppress(KeyboardInterrupt):
        while _shown(folder, again=follow) and follow:
            time.sleep(interval)


def _shown(folder: Path, *, again: bool) -> bool:
    """Print where a run stands and return whether it goes on."""
    import msgspec

    from leakscope.analysis import analyse, find_attempts
    from leakscope.cli.many_ranks import open_many
    from leakscope.cli.report import catalogue_in_force
    from leakscope.recording import open_run
    from leakscope.report import render_text

    many = open_many(folder)  # of many ranks the first speaks for all
    run = find_attempts(open_run(folder) if many is None else many.run).latest
    goes_on = is_running(run)
    on_terminal = sys.stdout.isatty()
    report = analyse(run, catalogue=catalogue_in_force())
    if goes_on:  # what has no closing record yet was not killed
        facts = msgspec.structs.replace(report.run, ended="")
        report = msgspec.structs.replace(report, run=facts)
    text = render_text(report, width=terminal_width(100), color=wants_color(on_terminal))
    lines = [state_of(run, goes_on=goes_on), "", *text.splitlines()]
    if again and on_terminal:
        click.echo(_HOME, nl=False)
        lines = lines[: shutil.get_terminal_size().lines - 1]
    print_text("\n".join(lines))
    return goes_on


def state_of(run: Run, *, goes_on: bool) -> str:
    """Return in a line where a run stands."""
    from leakscope.analysis.columns.units import epochs_are_visible

    boundaries = run.main.measurements
    name = run.manifest.script or run.path.name
    if not boundaries:
        return f"{name}: nothing was recorded yet." if goes_on else f"{name}: nothing was recorded."
    last = boundaries[-1].boundary
    seen = epochs_are_visible(measurement.boundary for measurement in boundaries)
    words = [f"epoch {last.epoch + 1}" if seen else "", f"step {last.step:,}", last.phase]
    where = ", ".join(word for word in words if word)
    if not goes_on:
        return f"{name} ended after {last.time_s:.0f} s ({where})."
    ago = max(time.time() - run.main.header.started - last.time_s, 0.0)
    return f"{name} is running: {where}, {last.time_s:.0f} s; last recorded {ago:.0f} s ago."


def is_running(run: Run) -> bool:
    """Return whether the process that records a run still does, as far as this machine can tell.

    Of a run on another machine it is taken to go on until it says that it ended.
    """
    return run.main.goes_on is not False


_EPILOG_OF_MERGE = """\b
Examples:
  leakscope merge node0/run node1/run --out run

\b
Machines without a shared disk have a directory each. The recordings are copied; what is merged
stays as it is.

\b
Exit codes:
  0  merged
  1  one of them is no run, they don't belong together, or nothing could be written
  2  a command line that makes no sense
"""


@click.command(epilog=_EPILOG_OF_MERGE)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", "-o", required=True, type=click.Path(path_type=Path), help="Run directory.")
@click.option("--force", is_flag=True, help="Replace a run that --out holds already.")
def merge(runs: tuple[Path, ...], *, out: Path, force: bool) -> None:
    """Put the recordings of RUNS, ranks of one training, into one run directory."""
    from leakscope.cli.report import conclude, write_reports
    from leakscope.recording.reader import merge_runs

    merged = merge_runs(runs, out, force=force)
    page = write_reports(merged.path, conclude(merged.path))
    click.echo(
        f"leakscope: {len(runs)} runs merged into {merged.path}\nleakscope: report in {page}"
    )
