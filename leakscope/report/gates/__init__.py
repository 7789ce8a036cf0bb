"""A check of a run, in the forms that ``leakscope check --format`` takes."""

from __future__ import annotations

from leakscope.model.documents import Check
from leakscope.report.gates.formats import (
    render_check_github,
    render_check_junit,
    render_check_markdown,
    render_check_text,
)
from leakscope.report.gates.sarif import render_check_sarif
from leakscope.report.json import render_check_json

FORMS = ("text", "json", "sarif", "github", "markdown", "junit")


def render_check(
    check: Check,
    form: str,
    *,
    width: int = 100,
    color: bool = False,
    version: str = "",
    otherwise: str = "",
) -> str:
    """Return a check in one of :data:`FORMS`.

    Args:
        check: What is told.
        form: One of :data:`FORMS`.
        width: Columns of a text.
        color: Whether a text has colours.
        version: leakscope's own, for SARIF.
        otherwise: The file for what has no place of its own, for SARIF.

    """
    if form == "text":
        return render_check_text(check, width=width, color=color)
    if form == "sarif":
        return render_check_sarif(check, version=version, otherwise=otherwise)
    renderers = {
        "json": render_check_json,
        "github": render_check_github,
        "markdown": render_check_markdown,
        "junit": render_check_junit,
    }
    return renderers[form](check)
