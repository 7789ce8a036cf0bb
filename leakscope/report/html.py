"""Every report as one self-contained HTML file.

This is the only place where markup enters a page unescaped: our own drawings, style and script.
Nothing from the user's program passes here except :func:`embed_json`, whose output holds no
character that could end a script element, in any letter case. Compiled templates are cached, as
Python does with its own modules.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import cache_from_source
from pathlib import Path, PurePath
from typing import Any

import jinja2
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket, BytecodeCache
from markupsafe import Markup, escape

from leakscope.model.comparison import Comparison
from leakscope.model.documents import GrowthReport, RunList
from leakscope.model.explanation import Explanation, SnapshotComparison
from leakscope.model.report import Report
from leakscope.model.text import printable
from leakscope.report import measuring, processes, tables, text, words
from leakscope.report.json import with_texts
from leakscope.report.page import report_page
from leakscope.report.sections import shade_of
from leakscope.report.svg import Drawing

AMOUNT = re.compile(r"(?<=\d) (?=(?:[KMGTP]i)?B\b|%|m?s\b|min\b)")
"""The space between a number and its unit, where no line may end."""


def render_html(report: Report) -> str:
    """Return the report page: no network, nothing of the user's unescaped, same input same file."""
    return _environment().get_template("report.html.j2").render(page=report_page(report))


def render_comparison_html(comparison: Comparison, reports: Sequence[str] = ("", "")) -> str:
    """Return the page of two runs side by side, with links to their reports where these are named:
    paths from the folder that the page will lie in.
    """
    from leakscope.report.comparison.page import comparison_page

    page = comparison_page(comparison, reports)
    return _environment().get_template("comparison.html.j2").render(page=page)


def render_snapshot_html(document: Explanation | SnapshotComparison) -> str:
    """Return the page of a CUDA snapshot explained, or of several compared."""
    from leakscope.report.snapshot import BY_CLASS, COLUMNS, snapshot_page, snapshots_page

    if isinstance(document, Explanation):
        return _environment().get_template("snapshot.html.j2").render(page=snapshot_page(document))
    template = _environment().get_template("snapshots.html.j2")
    return template.render(page=snapshots_page(document), columns=COLUMNS, by_class=BY_CLASS)


def render_growth_html(report: GrowthReport) -> str:
    """Return the page of what grows with every call of a scenario."""
    from leakscope.report.scenario import growth_page

    return _environment().get_template("growth.html.j2").render(page=growth_page(report))


def render_runs_html(
    lists: Sequence[RunList], *, folder: PurePath, title: str = "Runs", introduction: str = ""
) -> str:
    """Return the page of lists of runs, whose links are relative to the folder it will lie in."""
    from leakscope.report import runs

    page = runs.runs_page(lists, title, introduction, folder)
    return _environment().get_template("runs.html.j2").render(page=page, runs=runs)


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
        loader=FileSystemLoader(TEMPLATES),
        bytecode_cache=TemplateCache(Path(TEMPLATES)),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        amount=text.size_of,
        bar=tables.bar_of,
        cell=tables.cell_of,
        clock=text.clock,
        duration=text.humane_duration,
        ends=text.humane_interval,
        exact=text.exact_bytes,
        exact_interval=text.exact_interval,
        metric=words.metric_words,
        most=tables.most_bytes,
        number=text.humane_number,
        rate=text.humane_rate,
        shade=shade_of,
        share=text.humane_share,
    )
    environment.globals.update(
        content_security_policy=content_security_policy,
        embed_json=embed_json,
        inline_svg=inline_svg,
        measuring=measuring,
        name_parts=name_parts,
        path_parts=path_parts,
        processes=processes,
        script=script,
        stylesheet=stylesheet,
        tables=tables,
        verbatim=verbatim,
        words=words,
    )
    return environment


def _visible(value: Any) -> Any:
    # Markup is a str too, but ours alone: spelling out its characters would change nothing.
    return AMOUNT.sub("\N{NO-BREAK SPACE}", printable(value)) if type(value) is str else value


TEMPLATES = Path(__file__).parent / "templates"
STYLES = (
    "colours", "page", "answer", "assurance", "charts", "timeline", "cards", "code", "chain",
    "icicle", "tables", "ledger", "comparison", "cuda", "runs", "small-print", "measuring",
    "widths", "print",
)  # fmt: skip
"""Parts of the style sheet, in their order: what comes later wins."""
SCRIPTS = (
    "page", "amounts", "theme", "copying", "sorting", "readings", "map", "axes", "window",
    "drawing", "timeline", "icicle",
)  # fmt: skip
"""Parts of the script, in their order: a part may use what those before it define."""
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&'\u2028\u2029"}


def inline_svg(drawing: Drawing) -> Markup:
    """Return a drawing of ours; its title was escaped where it was made."""
    return Markup(drawing.svg)  # noqa: S704


@lru_cache(maxsize=1)
def stylesheet() -> Markup:
    """Return the page's style sheet."""
    return Markup(_joined("style", STYLES, ".css"))  # noqa: S704


@lru_cache(maxsize=1)
def script() -> Markup:
    """Return the page's one script; its parts share a scope that nothing else sees."""
    body = _joined("script", SCRIPTS, ".js")
    return Markup(f'"use strict";\n(() => {{\n{body}}})();\n')  # noqa: S704


def content_security_policy() -> str:
    """Return the policy that lets nothing run but our script, and nothing load at all."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def embed_json(value: Any) -> Markup:
    """Return a value as JSON in plain ASCII for a script element that is never executed."""
    encoded = _dumped(value)
    if _may_be_unseen(encoded):
        encoded = _dumped(with_texts(value, printable))
    return Markup(encoded.translate(_ESCAPES))  # noqa: S704


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _may_be_unseen(encoded: str) -> bool:
    """Return whether JSON in ASCII may hold characters that can't be seen: mostly it holds none,
    and then the thousands of values in it needn't be gone through.
    """
    codes = {int(code, 16) for code in re.findall(r"\\u([0-9a-f]{4})", encoded)}
    others = "\x7f" in encoded or re.search(r"\\[bfr]", encoded) is not None
    return others or any(printable(chr(code)) != chr(code) for code in codes)


def _joined(folder: str, names: Sequence[str], ending: str) -> str:
    files = (TEMPLATES / folder / f"{name}{ending}" for name in names)
    return "".join(file.read_text(encoding="utf-8") for file in files)


class TemplateCache(BytecodeCache):
    """Keeps compiled templates where Python keeps compiled modules, and under the same rules.

    That is in ``__pycache__`` beside them or below ``PYTHONPYCACHEPREFIX``; nothing is written
    with ``PYTHONDONTWRITEBYTECODE``, or where the folder can't be written to. What was compiled
    from another text, or by another Python or jinja, is not used.
    """

    def __init__(self, templates: Path) -> None:
        self._templates = templates

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket with what was compiled before, if it is of use."""
        try:
            with self._path(bucket).open("rb") as file:
                bucket.load_bytecode(file)
        except Exception:  # not there, cut short or broken: it is compiled again
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what was just compiled."""
        if sys.dont_write_bytecode:
            return
        path = self._path(bucket)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("wb") as file:
                    bucket.write_bytecode(file)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def _path(self, bucket: Bucket) -> Path:
        source = self._templates / f"{bucket.key}.{jinja2.__version__}.j2"
        return Path(cache_from_source(str(source)))
