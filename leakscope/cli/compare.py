"""``leakscope compare``: what became of each culprit between two runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import click

from leakscope.cli.output import (
    FORMS,
    format_of,
    format_option,
    is_stdout,
    out_option,
    print_text,
    say,
    shows_color,
    terminal_width,
    write_output,
)
from leakscope.cli.report import HTML, read_report
from leakscope.model.comparison import ChangeKind, Comparison, CulpritChange
from leakscope.model.errors import EXIT_OK, EXIT_THRESHOLD
from leakscope.model.report import Severity

_FORMS = (*FORMS, "markdown")
_REMAINING = frozenset(ChangeKind) - {ChangeKind.FIXED}
_EPILOG = """\b
Examples:
  leakscope compare runs/before runs/after
  leakscope compare runs/before runs/after --out comparison.html
  leakscope compare runs/before runs/after --format markdown   for a pull request
  leakscope compare main/report.json runs/after --fail-on new,worse

\b
--fail-on takes new, worse, unchanged, reduced, fixed or any (all but fixed), separated by commas.
Notes never count: only culprits of severity warning or critical do.

\b
Exit codes:
  0  compared
  1  one of the two is no run, or can't be read or written
  2  --fail-on was met, or a command line that makes no sense
"""


def to_changes(
    _: click.Context | None, __: click.Parameter | None, text: str
) -> frozenset[ChangeKind]:
    """Return the changes in a list separated by commas; ``any`` stands for all but ``fixed``."""
    names = {name.strip().lower() for name in text.split(",")} - {""}
    known = {change.value for change in ChangeKind}
    for name in sorted(names - known - {"any"}):
        raise click.BadParameter(f"{name!r} is none of {', '.join(sorted(known))}, any.")
    named = frozenset(ChangeKind(name) for name in names & known)
    return named | _REMAINING if "any" in names else named


@click.command(epilog=_EPILOG)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@format_option("text", _FORMS)
@out_option()
@click.option(
    "--fail-on",
    callback=to_changes,
    default="",
    metavar="CHANGES",
    help="Exit with 2 if a culprit changed so.",
)
def compare(
    before: Path, after: Path, *, form: str | None, out: Path | None, fail_on: frozenset[ChangeKind]
) -> int:
    """Hold two runs side by side: what is fixed, reduced, unchanged, worse or new.

    BEFORE and AFTER are run directories, analysed anew, or a report.json.
    """
    from leakscope.analysis import compare as compare_reports

    form = form or format_of(out, "text", _FORMS)
    comparison = compare_reports(read_report(before), read_report(after))
    reports = [existing_page(out, run) for run in (before, after)]
    write_output(_rendered(comparison, form, out, reports), out, form)
    if not is_stdout(out):
        print_text(f"leakscope: {comparison.headline}\nleakscope: comparison in {out}")
    met = [change for change in comparison.culprits if is_met(change, fail_on)]
    for change in met:
        say(f"--fail-on is met: {change.name} is {change.change.value}.")
    return EXIT_THRESHOLD if met else EXIT_OK


def is_met(change: CulpritChange, fail_on: Collection[ChangeKind]) -> bool:
    """Return whether a culprit's change is among those that fail; notes never are."""
    return change.change in fail_on and change.severity is not Severity.NOTE


def existing_page(out: Path | None, run: Path) -> str:
    """Return the path from a page to a run's own, empty where that doesn't lie beside or below it.

    A link to anywhere else would break as soon as the folder is handed on.
    """
    if out is None or is_stdout(out):
        return ""
    page = run / HTML if run.is_dir() else run.with_suffix(".html")
    folder = out.absolute().parent.resolve()
    beside = page.absolute().parent.resolve() / page.name
    if not page.is_file() or not beside.is_relative_to(folder):
        return ""
    return str(beside.relative_to(folder))


def _rendered(comparison: Comparison, form: str, out: Path | None, reports: Sequence[str]) -> str:
    from leakscope.report import (
        render_comparison_html,
        render_comparison_json,
        render_comparison_markdown,
        render_comparison_text,
    )

    if form == "html":
        return render_comparison_html(comparison, reports)
    if form == "json":
        return render_comparison_json(comparison)
    if form == "markdown":
        return render_comparison_markdown(comparison)
    return render_comparison_text(comparison, width=terminal_width(100), color=shows_color(out))
