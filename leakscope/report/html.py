"""Reports and comparisons as one self-contained HTML file each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from leakscope.model.comparison import Comparison
from leakscope.model.explanation import Explanation, SnapshotComparison
from leakscope.model.growth import GrowthReport
from leakscope.model.printable import printable
from leakscope.model.report import Report
from leakscope.model.runs import RunList
from leakscope.report import trusted
from leakscope.report.page import report_page
from leakscope.report.templating import TemplateCache

AMOUNT = re.compile(r"(?<=\d) (?=(?:[KMGTP]i)?B\b|%|m?s\b|min\b)")
"""The space between a number and its unit, where no line may end."""


def render_html(report: Report) -> str:
    """Return the report page: no network, nothing of the user's unescaped, same input same file."""
    return _environment().get_template("report.html.j2").render(page=report_page(report))


def render_comparison_html(comparison: Comparison, reports: Sequence[str] = ("", "")) -> str:
    """Return the page of two runs side by side, with links to their reports where these are told:
    paths from the folder that the page will lie in.
    """
    from leakscope.report.comparison import comparison_page

    page = comparison_page(comparison, reports)
    return _environment().get_template("comparison.html.j2").render(page=page)


def render_snapshot_html(told: Explanation | SnapshotComparison) -> str:
    """Return the page of a CUDA snapshot explained, or of several compared."""
    from leakscope.report.cuda.comparison import COLUMNS, snapshots_page
    from leakscope.report.cuda.page import snapshot_page

    if isinstance(told, Explanation):
        return _environment().get_template("snapshot.html.j2").render(page=snapshot_page(told))
    template = _environment().get_template("snapshots.html.j2")
    return template.render(page=snapshots_page(told), columns=COLUMNS)


def render_growth_html(report: GrowthReport) -> str:
    """Return the page of what grows with every call of a scenario."""
    from leakscope.report.growth import growth_page

    return _environment().get_template("growth.html.j2").render(page=growth_page(report))


def render_runs_html(
    lists: Sequence[RunList], *, beside: PurePath, title: str = "Runs", lead_in: str = ""
) -> str:
    """Return the page of lists of runs, whose links are relative to the folder it will lie in."""
    from leakscope.report.runs.page import runs_page

    page = runs_page(lists, title, lead_in, beside)
    return _environment().get_template("runs.html.j2").render(page=page)


def path_parts(place: str) -> list[str]:
    """Return a path cut after its slashes: where a narrow page may break it."""
    return re.findall(r"[^/]*/|[^/]+$", place)


def name_parts(name: str) -> list[str]:
    """Return a name cut before its dots and after its underscores, where a line may end."""
    return [part for part in re.split(r"(?=[.·])|(?<=_)", name) if part]


def verbatim(code: str) -> Markup:
    """Return code as it was written, for people copy it from the page."""
    return escape(printable(code))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(trusted.TEMPLATES),
        bytecode_cache=TemplateCache(Path(trusted.TEMPLATES)),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        path_parts=path_parts,
        name_parts=name_parts,
        verbatim=verbatim,
        inline_svg=trusted.inline_svg,
        stylesheet=trusted.stylesheet,
        script=trusted.script,
        content_security_policy=trusted.content_security_policy,
        embed_json=trusted.embed_json,
    )
    return environment


def _visible(value: Any) -> Any:
    # Markup is a str too, but ours alone: spelling out its characters would change nothing.
    return AMOUNT.sub("\N{NO-BREAK SPACE}", printable(value)) if type(value) is str else value
