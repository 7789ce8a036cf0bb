"""Reports for people and for programs: HTML, terminal, Markdown and JSON.

The libraries behind the pages are imported when a page is requested, so that the summary after a
run costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakscope.model import exports

if TYPE_CHECKING:
    from leakscope.report.comparison.terminal import render_comparison_text
    from leakscope.report.html import (
        render_comparison_html,
        render_html,
        render_runs_html,
        render_snapshot_html,
    )
    from leakscope.report.json import json_schema, render_json
    from leakscope.report.markdown import render_comparison_markdown
    from leakscope.report.runs import render_runs_text
    from leakscope.report.snapshot_terminal import render_snapshot_text
    from leakscope.report.terminal import render_summary, render_text

__all__ = [
    "json_schema",
    "render_comparison_html",
    "render_comparison_markdown",
    "render_comparison_text",
    "render_html",
    "render_json",
    "render_runs_html",
    "render_runs_text",
    "render_snapshot_html",
    "render_snapshot_text",
    "render_summary",
    "render_text",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "comparison.terminal": ("render_comparison_text",),
        "html": (
            "render_comparison_html",
            "render_html",
            "render_runs_html",
            "render_snapshot_html",
        ),
        "json": ("json_schema", "render_json"),
        "markdown": ("render_comparison_markdown",),
        "runs": ("render_runs_text",),
        "snapshot_terminal": ("render_snapshot_text",),
        "terminal": ("render_summary", "render_text"),
    },
)
