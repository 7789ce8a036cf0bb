"""From a recording to its report: read, analyse, write the files, print the summary.

Analysis and report are imported in the functions: ``run`` waits beside a training without them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from leakscope.cli.output import terminal_width, wants_color, write_text

if TYPE_CHECKING:
    from leakscope.analysis.remedies.catalogue import Catalogue
    from leakscope.model.report import Report

HTML = "report.html"
JSON = "report.json"


def conclude(run_path: Path) -> Report:
    """Return what is concluded about a run, from its recording alone."""
    from leakscope.analysis import analyse
    from leakscope.cli.many_ranks import analyse_in_parallel, open_many
    from leakscope.recording import open_run
    from leakscope.recording.directory import find_run

    folder = find_run(run_path)
    catalogue = catalogue_in_force()
    many = open_many(folder)
    if many is None:
        return analyse(open_run(folder), catalogue=catalogue)
    return analyse(many.run, analyse_in_parallel(many, catalogue=catalogue), catalogue, many.read)


def catalogue_in_force() -> Catalogue:
    """Return the known culprits: those of the project before those that leakscope ships."""
    from leakscope.analysis.remedies.catalogue import with_own
    from leakscope.configuration import read_configuration, read_known_culprits

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
    from leakscope.report.text import fitted

    text = render_summary(
        report,
        report_path="" if page is None else str(page),
        run_path=str(run_path),
        width=terminal_width(80),
        color=wants_color(sys.stderr.isatty()),
    )
    sys.stderr.write(fitted(text, sys.stderr.encoding))
    sys.stderr.flush()
