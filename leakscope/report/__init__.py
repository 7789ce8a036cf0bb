"""Reports for people and for programs: HTML, terminal, Markdown and JSON.

The libraries behind the pages are imported when a page is asked for, so that the summary after a
run costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from leakscope.model.comparison import Comparison
from leakscope.model.documents import RunList
from leakscope.model.explanation import Explanation, SnapshotComparison
from leakscope.model.report import Report
from leakscope.report.comparison.terminal import render_comparison_text
from leakscope.report.json import (
    json_schema,
    render_comparison_json,
    render_json,
    render_runs_json,
    render_snapshot_json,
)
from leakscope.report.snapshot_terminal import render_explanation_text, render_snapshots_text
from leakscope.report.terminal import render_summary, render_text

__all__ = [
    "json_schema",
    "render_comparison_html",
    "render_comparison_json",
    "render_comparison_markdown",
    "render_comparison_text",
    "render_html",
    "render_json",
    "render_runs_html",
    "render_runs_json",
    "render_runs_text",
    "render_snapshot_html",
    "render_snapshot_json",
    "render_snapshot_text",
    "render_summary",
    "render_text",
]


def render_html(report: Report) -> str:
    """Return the report as one self-contained HTML file."""
    from leakscope.report import html

    return html.render_html(report)


def render_comparison_html(comparison: Comparison, reports: Sequence[str] = ("", "")) -> str:
    """Return the comparison as one self-contained HTML file."""
    from leakscope.report import html

    return html.render_comparison_html(comparison, reports)


def render_comparison_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown, for a pull request."""
    from leakscope.report import markdown

    return markdown.comparison_markdown(comparison)


def render_runs_html(
    lists: Sequence[RunList], *, folder: PurePath, title: str = "Runs", introduction: str = ""
) -> str:
    """Return lists of runs as one self-contained HTML file that will lie in a certain folder."""
    from leakscope.report import html

    return html.render_runs_html(lists, folder=folder, title=title, introduction=introduction)


def render_runs_text(listed: RunList, *, width: int = 100, color: bool = False) -> str:
    """Return a list of runs for a terminal."""
    from leakscope.report import runs

    return runs.render_runs_text(listed, width=width, color=color)


def render_snapshot_html(document: Explanation | SnapshotComparison) -> str:
    """Return a snapshot explained, or several compared, as one self-contained HTML file."""
    from leakscope.report import html

    return html.render_snapshot_html(document)


def render_snapshot_text(
    document: Explanation | SnapshotComparison, *, width: int = 100, color: bool = False
) -> str:
    """Return a snapshot explained, or several compared, for a terminal."""
    if isinstance(document, Explanation):
        return render_explanation_text(document, width=width, color=color)
    return render_snapshots_text(document, width=width, color=color)
