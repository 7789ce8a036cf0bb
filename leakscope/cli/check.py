"""``leakscope check``: fail where something grows that isn't allowed, and write that for CI.

The formats of CI want paths relative to the root of the repository, which is looked up here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from leakscope.cli.output import (
    PLACE,
    NoDocumentError,
    is_stdout,
    looks,
    notify,
    output_options,
    read_document,
    setting_options,
    write_output,
    write_text,
)
from leakscope.cli.report import conclude, read_report
from leakscope.configuration import BY_NAME
from leakscope.model import __version__
from leakscope.model.errors import EXIT_OK, EXIT_THRESHOLD, LeakscopeError
from leakscope.model.report import Culprit, Finding, Report
from leakscope.model.text import plural

if TYPE_CHECKING:
    from leakscope.analysis.gate import Allowed, GrowthLimit
    from leakscope.configuration.project import Configuration
    from leakscope.model.documents import Baseline, Check


_FORMS = ("text", "json", "sarif", "github", "markdown", "junit")
_SUFFIXES = {".txt": "text", ".json": "json", ".sarif": "sarif", ".md": "markdown", ".xml": "junit"}
_SUMMARY = "GITHUB_STEP_SUMMARY"
_EPILOG = """\b
Examples:
  leakscope check RUN
  leakscope check RUN --max-growth "1 MB/epoch"
  leakscope check RUN --write-baseline leaks.json      accepts what grows today
  leakscope check RUN --baseline leaks.json            fails for what is new or got faster
  leakscope check RUN --format github --also leakscope.sarif --also leakscope.xml --job-summary

\b
Culprits and findings of severity warning or critical fail the check; notes don't. With --max-growth
a culprit fails if it grows faster than that, also as a note; slower culprits pass, unless together
they grow faster. The limit doesn't cover memory that is released when a phase ends. An inconclusive
run fails; --no-strict lets it pass.

\b
What isn't given is taken from LEAKSCOPE_CHECK_* and from [tool.leakscope.check] in pyproject.toml.
There a project also suppresses what it accepts, with a reason:
  [[tool.leakscope.suppress]]
  pattern = "Trainer.history"
  reason = "a float per epoch, wanted for the plot"
  expires = 2027-01-31

\b
Exit codes:
  0  nothing grows that isn't allowed, or --write-baseline wrote what does
  1  RUN is no run, a file can't be read or written, or pyproject.toml has something
     that a check can't follow: an unknown table or key of the check, a suppression without a
     reason
  2  something grows that isn't allowed, the run is inconclusive, or an invalid command line
"""


def to_file_with_form(path: str) -> Path:
    """Return a file whose suffix names its form."""
    if Path(path).suffix.lower() not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise click.BadParameter(f"{path} names no form; use one of {known}.")
    return Path(path)


@click.command(epilog=_EPILOG)
@click.argument("run", type=PLACE)
@setting_options("check.max-growth", "check.baseline", "check.tolerance")
@click.option(
    "--write-baseline",
    "written",
    type=PLACE,
    metavar="FILE",
    help="Write what grows as a baseline, without failing; reasons in FILE are kept.",
)
@setting_options("check.ignore", "check.strict")
@output_options("text", _FORMS, _SUFFIXES)
@click.option(
    "--also",
    multiple=True,
    type=to_file_with_form,
    metavar="FILE",
    help="Write this file too, in the format of its suffix: "
    ".sarif, .xml (JUnit), .json, .md, .txt.",
)
@click.option("--job-summary", is_flag=True, help=f"Add Markdown to the file in ${_SUMMARY}.")
def check(
    run: Path,
    *,
    written: Path | None,
    form: str,
    out: Path | None,
    also: tuple[Path, ...],
    job_summary: bool,
    **chosen: Any,
) -> int:
    """Fail where something in RUN grows that isn't allowed.

    RUN is a run directory, which is analysed again, or a report.json.
    """
    from leakscope.analysis.gate import check as check_report
    from leakscope.report.gates import log_line, render_check

    allowed = _allowed(chosen, written)
    report, project_root = _read(run)
    repository = find_repository(Path.cwd(), project_root)
    report = localised(report, repository)
    checked = check_report(report, allowed)
    if written is not None:
        _write_baseline(checked, report, allowed, written)
        return EXIT_OK
    otherwise = repository.file(checked.run.script)
    rendered = partial(render_check, checked, version=__version__, otherwise=otherwise)
    for path in also:
        write_text(path, rendered(_SUFFIXES[path.suffix.lower()], **looks(path)))
    write_output(rendered(form, **looks(out)), out, form)
    if not is_stdout(out):
        click.echo(f"leakscope: {log_line(checked.headline)}\nleakscope: check in {out}")
    elif form != "text":
        notify(log_line(checked.headline))
    if job_summary:
        _add_to_summary(rendered("markdown"))
    return EXIT_OK if checked.passes else EXIT_THRESHOLD


def _allowed(chosen: Mapping[str, Any], written: Path | None) -> Allowed:
    """Return what is allowed: by the command line, else by the environment, else by the project."""
    from leakscope.analysis.gate import Allowed
    from leakscope.configuration.project import read_configuration, read_suppressions

    configuration = read_configuration()
    configuration.refuse_faults(for_gate=True)
    suppressions, unknown = read_suppressions(configuration.section)
    if unknown:
        raise LeakscopeError(unknown[0])

    def in_force(name: str) -> Any:
        value = chosen[BY_NAME[name].option]
        return configuration.value(name) if value is None else value

    before = None
    if written is not None and written.exists():
        before = read_baseline(written, is_replaced=True)
    baseline = chosen["baseline"] if written is not None else in_force("check.baseline")
    return Allowed(
        today=datetime.now(timezone.utc).date(),
        limit=limit_in(configuration, chosen["max_growth"]),
        baseline=read_baseline(baseline) if baseline is not None else before,
        tolerance=in_force("check.tolerance"),
        ignored=in_force("check.ignore"),
        suppressions=suppressions,
        remarks=configuration.remarks,
        strict=in_force("check.strict"),
    )


def limit_in(configuration: Configuration, chosen: str | None = None) -> GrowthLimit | None:
    """Return what the command line, or else the environment or the project lets grow.

    None where nobody sets a limit.

    Raises:
        click.BadParameter: on the command line it is no rate of growth.
        LeakscopeError: elsewhere it is none; the message says where it is written.

    """
    from leakscope.analysis.gate import to_growth_limit

    name = "check.max-growth"
    text = chosen or configuration.value(name)
    try:
        return to_growth_limit(text) if text else None
    except LeakscopeError as fault:
        if chosen:
            raise click.BadParameter(str(fault), param_hint="'--max-growth'") from fault
        where = configuration.chosen[name].source
        raise LeakscopeError(f"{name} in {where}: {fault}") from fault


def read_baseline(path: Path, *, is_replaced: bool = False) -> Baseline:
    """Return a baseline; a file that is none is not to be replaced by one.

    Raises:
        NewerSchemaError: a newer leakscope wrote it.
        LeakscopeError: it is none, or can't be read.

    """
    from leakscope.model.documents import BASELINE_SCHEMA_VERSION, Baseline

    try:
        return read_document(path, Baseline, BASELINE_SCHEMA_VERSION, has_headline=False)
    except NoDocumentError as fault:
        where = "FILE writes one into a new FILE" if path.exists() else f"{path} writes one"
        text = f"{path} is no baseline: {fault}. leakscope check RUN --write-baseline {where}."
        if is_replaced:
            text = f"{path} is there and no baseline: it is not written over. "
            text += "Name another file, or remove that one."
        raise LeakscopeError(text) from fault


def _read(run: Path) -> tuple[Report, str]:
    """Return a run's report and the folder that its paths are relative to, where it is known."""
    from leakscope.recording.directory import find_run, read_manifest

    if run.suffix == ".json" and run.is_file():
        return read_report(run), ""
    manifest = read_manifest(find_run(run))
    return conclude(run), "" if manifest is None else manifest.project_root


def _write_baseline(checked: Check, report: Report, allowed: Allowed, path: Path) -> None:
    from leakscope.analysis.gate import stale_baseline_entries
    from leakscope.analysis.gate.baseline import new_baseline
    from leakscope.report.gates import log_line
    from leakscope.report.json import render_json

    _, unsettled = stale_baseline_entries(checked.growths, report, allowed.baseline)
    baseline = new_baseline(checked.growths, allowed.baseline, unsettled)
    write_text(path, render_json(baseline))
    for remark in checked.remarks:
        notify(log_line(remark))
    click.echo(f"leakscope: {plural(len(baseline.culprits), 'known culprit')} in {path}")


def _add_to_summary(text: str) -> None:
    path = os.environ.get(_SUMMARY, "")
    if not path:
        notify(f"{_SUMMARY} is not set, so there is no summary of the job to add to.")
        return
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"{text}\n")
    except OSError as fault:
        notify(f"nothing was added to the summary of the job ({fault.strerror or fault}).")


S = TypeVar("S", Culprit, Finding)


@dataclass(frozen=True)
class Repository:
    """A repository's root, and the folder that a run's paths are relative to."""

    root: Path
    project_root: Path | None = None

    def place(self, place: str) -> str:
        """Return ``src/train.py:12`` relative to the root; as it is where it lies elsewhere."""
        file, _, line = place.rpartition(":")
        if not file or not line.isdigit():
            return self._relative(place)
        return f"{self._relative(file)}:{line}"

    def file(self, path: str) -> str:
        """Return a file's path relative to the root; empty where it is no file in there."""
        relative = self._relative(path)
        try:
            return relative if path and (self.root / relative).is_file() else ""
        except (OSError, ValueError):
            return ""

    def _relative(self, path: str) -> str:
        try:
            for base in (self.project_root, self.root):
                full = Path(os.path.normpath(base / path)) if base is not None else None
                if full is not None and full.is_relative_to(self.root) and full.is_file():
                    return full.relative_to(self.root).as_posix()
        except (OSError, ValueError):
            return path
        return path


def find_repository(start: Path, project_root: str) -> Repository:
    """Return the repository around a folder, or the folder itself where there is none.

    ``project_root`` is the folder that the paths of a run are relative to, where it is known.
    """
    folder = Path(os.path.realpath(start))
    root = next((f for f in (folder, *folder.parents) if (f / ".git").exists()), folder)
    project = Path(os.path.realpath(project_root)) if project_root else None
    return Repository(root, project)


def localised(report: Report, repository: Repository) -> Report:
    """Return the report with the places of all that grows relative to the repository's root."""
    return msgspec.structs.replace(
        report,
        culprits=[_localised(culprit, repository) for culprit in report.culprits],
        findings=[_localised(finding, repository) for finding in report.findings],
    )


def _localised(suspect: S, repository: Repository) -> S:
    defined = suspect.defined_at
    return msgspec.structs.replace(
        suspect,
        fed_at=[repository.place(place) for place in suspect.fed_at],
        allocated_at=[repository.place(place) for place in suspect.allocated_at],
        defined_at=None if defined is None else repository.place(defined),
    )
