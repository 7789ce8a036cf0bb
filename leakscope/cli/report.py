"""``leakscope report``: rebuild a run's report from its recording alone, without torch."""

from __future__ import annotations

from pathlib import Path

import click

from leakscope.cli.conclusion import HTML, conclude, print_summary, write_reports
from leakscope.cli.output import (
    STDOUT,
    deliver,
    format_of,
    format_option,
    out_option,
    shows_color,
    tell,
    terminal_width,
)
from leakscope.model.report import Report

_EPILOG = """\b
Examples:
  leakscope report RUN                        writes RUN/report.html and RUN/report.json
  leakscope report RUN --format text          prints the report
  leakscope report RUN --why history          prints why history is a leak, or none
  leakscope report RUN --out /tmp/page.html   writes the page there, nothing into RUN

\b
Exit codes:
  0  written
  1  RUN is no run, or nothing could be written
  2  a command line that makes no sense
"""


@click.command(epilog=_EPILOG)
@click.argument("run", type=click.Path(path_type=Path))
@format_option("html")
@out_option("Where to write; - is stdout.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
@click.option("--why", metavar="NAME", help="Print how the verdict on NAME came about.")
@click.option("--summary", is_flag=True, help="Print the summary to stderr as after a run.")
def report(
    run: Path, *, form: str | None, out: Path | None, show: bool, why: str | None, summary: bool
) -> None:
    """Rebuild the report of RUN from its recording."""
    from leakscope.recording.directory import find_run

    form = form or format_of(out, "html")
    run = find_run(run)
    concluded = conclude(run)
    if why is not None:
        from leakscope.report.measuring import render_why

        click.echo(render_why(concluded, why))
        return
    page = run / HTML
    if form == "html" and out is None:
        write_reports(run, concluded)
    else:
        deliver(_rendered(concluded, form, out), out, form)
        page = out if out is not None and form == "html" else page
    if summary:
        print_summary(concluded, run, page)
    elif form == "html" and out != STDOUT:
        tell(f"leakscope: {concluded.headline}\nleakscope: report in {page}")
    if show and page.exists():
        click.launch(str(page.absolute()))


def _rendered(concluded: Report, form: str, out: Path | None) -> str:
    from leakscope.report import render_html, render_json, render_text

    if form == "html":
        return render_html(concluded)
    if form == "json":
        return render_json(concluded)
    return render_text(concluded, width=terminal_width(100), color=shows_color(out))
