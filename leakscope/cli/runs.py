"""Run directories: all that lie below a directory, where one stands, one out of several, and two
side by side.

``leakscope runs``, ``show``, ``merge`` and ``compare``.
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
    FORMS,
    PLACE,
    exit_codes,
    is_stdout,
    looks,
    notify,
    output_options,
    print_text,
    rendered,
    run_directory_options,
    seconds_option,
    write_document,
    write_output,
)
from leakscope.cli.report import (
    HTML,
    JSON,
    catalogue_in_force,
    conclude,
    read_report,
    write_reports,
)
from leakscope.model.comparison import ChangeKind
from leakscope.model.documents import ListedRun, LiveLeak, RunList, RunStatus
from leakscope.model.errors import EXIT_OK, EXIT_THRESHOLD, NoRunError
from leakscope.model.report import Severity
from leakscope.recording.directory import (
    OUTCOME,
    RunDirectory,
    find_run,
    holds_run,
    journals,
    read_live,
    read_manifest,
)
from leakscope.recording.following import folder_goes_on
from leakscope.recording.reader import is_readable, merge_runs
from leakscope.report.runs import (
    UnreadableReportError,
    comparisons_in,
    histories_of,
    listed_live,
    live_leak_of,
    read_listed,
    summary_of,
    verdict_order,
)

if TYPE_CHECKING:
    from leakscope.model.run import Run


ORDERS: dict[str, Callable[[ListedRun], Any]] = {
    "newest": lambda run: -run.created,
    "name": lambda run: run.name,
    "verdict": lambda run: (verdict_order(run), -run.created),
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
        for folder in sorted(directory.iterdir()):
            if folder.is_dir() and not folder.name.startswith("."):
                shelf.look_into(folder, DEEPEST)
    except OSError as fault:
        raise NoRunError(f"{directory} can't be read: {fault.strerror or fault}.") from fault
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
            "folder that holds your runs."
        )
    if not directory.is_dir():
        raise NoRunError(f"{directory} is a file. Name the folder that holds runs.")
    if holds_run(directory):
        raise NoRunError(
            f"{directory} is a run itself: `leakscope report {directory}` makes its report. "
            f"{directory.absolute().parent} lists it with other runs."
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


def _listed(folder: Path, name: str) -> ListedRun | None:
    """Return the entry of a folder; None where it holds no run."""
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
        mended = f" {_what_to_do(folder, 'writes it again')}" if is_run else ""
        remark = f"{JSON} {fault}.{mended}"
    except OSError as fault:
        remark = f"The folder can't be read: {fault.strerror or fault}."
    return _bare(folder, name, page, RunStatus.UNREADABLE, remark)


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
        entry = _bare(folder, name, page, RunStatus.RUNNING, remark)
        return listed_live(entry, _leak_by_now(folder))
    remark = _what_to_do(folder, "makes its report")
    if goes_on is None:
        remark = f"It may still be running on another machine. {remark}"
    return _bare(folder, name, page, RunStatus.UNREPORTED, remark)


MOST_LIVE_BYTES = 20 << 20
"""A recording up to this size is judged while runs are listed: a second or two."""


def _leak_by_now(folder: Path) -> LiveLeak | None:
    """Return what leaks in a run that goes on: as noted by what watches it, else judged here."""
    noted = read_live(folder)
    if noted is not None:
        return noted
    size = sum(journal.stat().st_size for journal in journals(folder))
    if size > MOST_LIVE_BYTES:
        return None
    with contextlib.suppress(Exception):  # a recording that has hardly begun can't be judged
        return live_leak_of(conclude(folder), time.time())
    return None


def note_leak(run: str) -> None:
    """Judge a run that goes on, and note what leaks next to its recording; at low priority.

    Where memory is scarce, the kernel is to kill this process, not the program.
    """
    with contextlib.suppress(OSError):
        os.nice(19)
        Path("/proc/self/oom_score_adj").write_text("1000")
    folder = Path(run)
    RunDirectory(folder).write_live(live_leak_of(conclude(folder), time.time()))


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
Runs up to two folders further down are listed too, and comparison pages next to them.
Facts are from each run's report.json; a run without one, or still in progress, is marked so.
""" + exit_codes(
    "listed, also where there is no run yet", "DIRECTORY can't be read, or is a run itself"
)


@click.command(epilog=_EPILOG_OF_RUNS)
@click.argument("directory", type=PLACE, required=False)
@output_options("text")
@click.option(
    "--sort",
    "order",
    type=click.Choice(list(ORDERS)),
    default="newest",
    show_default=True,
    help="Order of the list; amounts are sorted from the largest down.",
)
def runs(directory: Path | None, *, form: str, out: Path | None, order: str) -> None:
    """List the runs in DIRECTORY with verdict and memory.

    DIRECTORY is by default the folder in which `leakscope run` makes runs.
    """
    from leakscope import report  # each form imports what it needs

    listed = list_runs(directory, order) if directory else _in_usual_directory(order)
    folder = Path(listed.directory) if is_stdout(out) or out is None else out.parent
    text = rendered(
        listed,
        form,
        html=lambda: report.render_runs_html([listed], folder=folder),
        text=lambda: report.render_runs_text(listed, **looks(out)),
    )
    write_output(text, out)
    if not is_stdout(out):
        click.echo(f"leakscope: {summary_of(listed.runs)}\nleakscope: list in {out}")


def _in_usual_directory(order: str) -> RunList:
    """List what ``leakscope run`` has made so far: where it made nothing, there is no run yet."""
    from leakscope.configuration.project import read_configuration

    directory = read_configuration().value("runs")
    assert isinstance(directory, Path)
    if not directory.exists():
        return RunList(directory=str(directory), runs=[])
    return list_runs(directory, order)


_EPILOG_OF_SHOW = """\b
Examples:
  leakscope show RUN                  where it stands now
  leakscope show RUN --follow         refreshed until the run ends or Ctrl-C

\b
Only the recording is read: the training doesn't notice. Ctrl-C ends the display.
""" + exit_codes("shown", "RUN is no run")
_HOME = "\x1b[H\x1b[J"
"""Goes to the top of the terminal and clears what is below."""


@click.command(epilog=_EPILOG_OF_SHOW)
@click.argument("run", type=PLACE)
@click.option("--follow", "-f", is_flag=True, help="Refresh it until the run ends.")
@seconds_option("--interval", 5.0, "Seconds between refreshes.", least=0.5)
def show(run: Path, *, follow: bool, interval: float) -> None:
    """Show where RUN stands: memory, growth, cost."""
    folder = find_run(run)
    with contextlib.suppress(KeyboardInterrupt):
        while _shown(folder, again=follow) and follow:
            time.sleep(interval)


def _shown(folder: Path, *, again: bool) -> bool:
    """Print where a run stands and return whether it goes on."""
    import msgspec

    from leakscope.analysis import analyse, find_attempts
    from leakscope.cli.many_ranks import open_leading
    from leakscope.report import render_text

    run = find_attempts(open_leading(folder)).latest
    # A run on another machine counts as going on until its recording says that it ended.
    goes_on = run.main.goes_on is not False
    on_terminal = sys.stdout.isatty()
    report = analyse(run, catalogue=catalogue_in_force())
    if goes_on:  # what has no closing record yet was not killed
        facts = msgspec.structs.replace(report.run, ended="")
        report = msgspec.structs.replace(report, run=facts)
    text = render_text(report, **looks())
    leak = live_leak_of(report, time.time()) if goes_on else None
    now = [f"{leak.when[:1].upper()}{leak.when[1:]}."] if leak is not None and leak.when else []
    lines = [state_of(run, goes_on=goes_on), *now, "", *text.splitlines()]
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
    step = f"step {last.step:,}" if last.step else ""
    words = [f"epoch {last.epoch + 1}" if seen else "", step, last.phase]
    where = ", ".join(word for word in words if word)
    if not goes_on:
        return f"{name} ended after {last.time_s:.0f} s{f' ({where})' if where else ''}."
    ago = max(time.time() - run.main.header.started - last.time_s, 0.0)
    where += ", " if where else ""
    return f"{name} is running: {where}{last.time_s:.0f} s; last recorded {ago:.0f} s ago."


_EPILOG_OF_MERGE = """\b
Examples:
  leakscope merge node0/run node1/run --out run

\b
Machines without a shared disk have a directory each. The recordings are copied; RUNS stay as
they are.
""" + exit_codes(
    "merged", "one of them is no run, they don't belong together, or nothing could be written"
)


@click.command(epilog=_EPILOG_OF_MERGE)
@click.argument("runs", nargs=-1, required=True, type=PLACE)
@run_directory_options("Run directory.", is_required=True)
def merge(runs: tuple[Path, ...], *, out: Path, force: bool) -> None:
    """Merge recordings of ranks of one training into one run.

    RUNS are the run directories of the machines.
    """
    merged = merge_runs(runs, out, force=force)
    page = write_reports(merged.path, conclude(merged.path))
    click.echo(
        f"leakscope: {len(runs)} runs merged into {merged.path}\nleakscope: report in {page}"
    )


_REMAINING = frozenset(ChangeKind) - {ChangeKind.FIXED}
_COMPARE_EPILOG = """\b
Examples:
  leakscope compare runs/before runs/after
  leakscope compare runs/before runs/after --out comparison.html
  leakscope compare runs/before runs/after --format markdown   for a pull request
  leakscope compare main/report.json runs/after --fail-on new,worse

\b
--fail-on takes new, worse, unchanged, reduced, fixed or any (all but fixed), separated by commas.
Notes never count: only culprits of severity warning or critical do.
""" + exit_codes(
    "compared",
    "one of the two is no run, or can't be read or written",
    "--fail-on was met, or an invalid command line",
)


def to_changes(text: str) -> frozenset[ChangeKind]:
    """Return the changes in a list separated by commas; ``any`` stands for all but ``fixed``."""
    names = {name.strip().lower() for name in text.split(",")} - {""}
    known = {change.value for change in ChangeKind}
    for name in sorted(names - known - {"any"}):
        raise click.BadParameter(f"{name!r} is none of {', '.join(sorted(known))}, any.")
    named = frozenset(ChangeKind(name) for name in names & known)
    return named | _REMAINING if "any" in names else named


@click.command(epilog=_COMPARE_EPILOG)
@click.argument("before", type=PLACE)
@click.argument("after", type=PLACE)
@output_options("text", (*FORMS, "markdown"))
@click.option(
    "--fail-on",
    type=to_changes,
    default="",
    metavar="CHANGES",
    help="Exit with 2 if a culprit changed in one of these ways.",
)
def compare(
    before: Path, after: Path, *, form: str, out: Path | None, fail_on: frozenset[ChangeKind]
) -> int:
    """Compare two runs: what is fixed, worse or new.

    BEFORE and AFTER are run directories, which are analysed again, or a report.json.
    """
    from leakscope import report  # each form imports what it needs
    from leakscope.analysis import compare as compare_reports

    comparison = compare_reports(read_report(before), read_report(after))
    reports = [existing_page(out, run) for run in (before, after)]
    write_document(
        "comparison",
        comparison,
        form,
        out,
        html=lambda: report.render_comparison_html(comparison, reports),
        markdown=lambda: report.render_comparison_markdown(comparison),
        text=lambda: report.render_comparison_text(comparison, **looks(out)),
    )
    grave = [change for change in comparison.culprits if change.severity is not Severity.NOTE]
    matching = [change for change in grave if change.change in fail_on]
    for change in matching:
        notify(f"--fail-on is met: {change.name} is {change.change.value}.")
    return EXIT_THRESHOLD if matching else EXIT_OK


def existing_page(out: Path | None, run: Path) -> str:
    """Return the path from a page to a run's own, empty where that doesn't lie next to or below it.

    A link to anywhere else would break as soon as the folder is copied elsewhere.
    """
    if out is None or is_stdout(out):
        return ""
    page = run / HTML if run.is_dir() else run.with_suffix(".html")
    folder = out.absolute().parent.resolve()
    target = page.absolute().parent.resolve() / page.name
    if not page.is_file() or not target.is_relative_to(folder):
        return ""
    return str(target.relative_to(folder))
