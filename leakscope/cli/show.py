"""``leakscope show``: where a run stands, from its recording, while it goes on."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leakscope.cli.output import print_text, terminal_width, wants_color

if TYPE_CHECKING:
    from leakscope.model.run import Run

_EPILOG = """\b
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


@click.command(epilog=_EPILOG)
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
