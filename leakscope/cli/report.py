"""From a recording to its report: read, analyse, write the files, print the summary.

``leakscope report`` does so for a run that is over, without torch, and ``leakscope explain`` says
what matters most in few words; other commands use the same functions. Analysis and report are
imported inside them: while a training runs, ``run`` waits without them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leakscope.cli.output import (
    PLACE,
    STDOUT,
    NoDocumentError,
    exit_codes,
    looks,
    notify,
    output_options,
    print_text,
    read_document,
    rendered,
    terminal_width,
    wants_color,
    write_output,
    write_text,
)
from leakscope.model.errors import NoRunError
from leakscope.recording.directory import find_run, is_file_of_run, journals

if TYPE_CHECKING:
    from leakscope.analysis.remedies.catalogue import Catalogue
    from leakscope.model.report import Report


HTML = "report.html"
JSON = "report.json"
_EPILOG = """\b
Examples:
  leakscope report RUN                        writes RUN/report.html and RUN/report.json
  leakscope report RUN --format text          prints the report
  leakscope report RUN --why history          prints why history is a leak or not
  leakscope report RUN --out /tmp/page.html   writes the page there, nothing into RUN
""" + exit_codes("written", "RUN is no run, or nothing could be written")


@click.command(epilog=_EPILOG)
@click.argument("run", type=PLACE)
@output_options("html", text="Where to write; - is stdout.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
@click.option("--why", metavar="NAME", help="Print the steps that led to the verdict on NAME.")
@click.option("--summary", is_flag=True, help="Print the summary to stderr as after a run.")
def report(
    run: Path, *, form: str, out: Path | None, show: bool, why: str | None, summary: bool
) -> None:
    """Rebuild the report of RUN from its recording."""
    from leakscope import report as rendering  # each form imports what it needs

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
        text = rendered(
            concluded,
            form,
            html=lambda: rendering.render_html(concluded),
            text=lambda: rendering.render_text(concluded, **looks(out)),
        )
        write_output(text, out, form)
        page = out if out is not None and form == "html" else page
    if summary:
        print_summary(concluded, run, page)
    elif form == "html" and out != STDOUT:
        print_text(f"leakscope: {concluded.headline}\nleakscope: report in {page}")
    if show and page.exists():
        click.launch(str(page.absolute()))


USUAL_BUDGET = 1500
"""Tokens that an explanation may take unless somebody says how many."""
_EPILOG_OF_EXPLAIN = """\b
Examples:
  leakscope explain RUN                   what grows, where, until when, what to change, what next
  leakscope explain RUN --budget 300      the same in a few lines
  leakscope explain RUN --json            for programs; docs/report-schema.json describes it

\b
The most important parts come first; the last line names what was left out. Tokens are estimated,
3.5 bytes of UTF-8 each. The verdict and the next command are always included.

\b
Exit codes, whatever the verdict:
  0  explained
  1  RUN is no run, or can't be read
  2  an invalid command line
"""


@click.command(epilog=_EPILOG_OF_EXPLAIN)
@click.argument("run", type=PLACE)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    default=USUAL_BUDGET,
    show_default=True,
    help="Maximal length, in tokens.",
)
def explain(run: Path, *, as_json: bool, budget: int) -> None:
    """Explain RUN in few words, for a chat or an agent.

    RUN is a run directory, which is analysed again, or a report.json.
    """
    from leakscope.report import render_json
    from leakscope.report.explaining import explain_run, render_run_explanation_text

    explained = explain_run(read_report(run), str(run), budget, is_recorded=_is_recorded(run))
    if as_json:
        write_output(render_json(explained), None, "json")
    else:
        print_text(render_run_explanation_text(explained))


def _is_recorded(path: Path) -> bool:
    try:
        find_run(path)
    except NoRunError:
        return False
    return True


def conclude(run_path: Path) -> Report:
    """Return what is concluded about a run, from its recording alone."""
    from leakscope.analysis import analyse
    from leakscope.cli.many_ranks import analyse_in_parallel, open_many
    from leakscope.recording import open_run

    folder = find_run(run_path)
    catalogue = catalogue_in_force()
    many = open_many(folder)
    if many is None:
        return analyse(open_run(folder), catalogue=catalogue)
    return analyse(many.run, analyse_in_parallel(many, catalogue=catalogue), catalogue, many.read)


def read_report(path: Path) -> Report:
    """Return the report of a run, from its recording or from a ``report.json`` kept elsewhere.

    Raises:
        NoRunError: it is neither.
        NewerSchemaError: a newer leakscope wrote it.

    """
    if path.suffix == ".json" and path.is_file() and not is_file_of_run(path):
        from leakscope.model.report import REPORT_SCHEMA_VERSION, Report

        try:
            return read_document(path, Report, REPORT_SCHEMA_VERSION, has_headline=True)
        except NoDocumentError as fault:
            raise NoRunError(f"{path} is no report of leakscope: {fault}.") from fault
    return conclude(path)


def catalogue_in_force() -> Catalogue:
    """Return the known culprits: those of the project before those that leakscope ships."""
    from leakscope.analysis.remedies.catalogue import with_own
    from leakscope.configuration.project import read_configuration, read_known_culprits

    return with_own(read_known_culprits(read_configuration().section))


def write_reports(run_path: Path, report: Report) -> Path:
    """Write both reports into the run directory and return the path of the page."""
    from leakscope.report import render_html, render_json

    write_text(run_path / JSON, render_json(report))
    page = run_path / HTML
    write_text(page, render_html(report))
    return page


def print_summary(report: Report, run_path: Path, page: Path | None) -> None:
    """Print the few lines after a run to stderr; ``page`` is None where it couldn't be written."""
    from leakscope.report import render_summary
    from leakscope.report.text import encodable

    text = render_summary(
        report,
        report_path="" if page is None else str(page),
        run_path=str(run_path),
        width=terminal_width(80),
        color=wants_color(sys.stderr.isatty()),
    )
    sys.stderr.write(encodable(text, sys.stderr.encoding))
    sys.stderr.flush()


def finish(path: Path, *, report: bool, quiet: bool) -> Report | None:
    """Write the report of a recording that is over and print its summary, as far as that is wanted.

    Returns the report where it was written.
    """
    written = [journal.stat().st_size for journal in journals(path)]
    if written and not any(written):
        return None  # there was no room for its first record, as the program's process has reported
    if report:
        concluded = conclude(path)
        try:
            page = write_reports(path, concluded)
        except Exception:
            if not quiet:
                print_summary(concluded, path, None)
            raise
        if not quiet:
            print_summary(concluded, path, page)
        return concluded
    if not quiet:
        notify(f"recorded in {path}; next: leakscope report {path}")
    return None
