"""``leakscope runs``: all runs in a directory, with verdicts and sparklines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from leakscope.cli.conclusion import terminal_width
from leakscope.cli.listing import ORDERS, list_runs
from leakscope.cli.output import (
    deliver,
    format_of,
    format_option,
    is_stdout,
    out_option,
    shows_color,
)

if TYPE_CHECKING:
    from leakscope.model.runs import RunList

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
    deliver(_rendered(listed, form, out), out)
    if not is_stdout(out):
        from leakscope.report.runs.words import summary_of

        click.echo(f"leakscope: {summary_of(listed.runs)}\nleakscope: list in {out}")


def _in_usual_directory(order: str) -> RunList:
    """List what ``leakscope run`` has made so far: where it made nothing, there is no run yet."""
    from leakscope.configuration.reading import read_configuration
    from leakscope.model.runs import RunList

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
