"""Pages of the diagnoses: leaking snippets leak as their pages say, fixed ones are clean."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from diagnosis_pages import (
    DOCS,
    OVERVIEW,
    Page,
    all_pages,
    excerpt,
    prelude,
    report_of,
    reported,
    without_figures,
)
from snippet_recorder import SnippetRecorder

from leakscope.model.report import Culprit, Finding, RunVerdict
from leakscope.report.gates.sarif import rule_of

PACKAGE = DOCS.parent / "leakscope"
EVERY = all_pages()
ELSEWHERE = (
    "child-processes-grow",
    "compiled-code",
    "held-by-native-code",
    "leaked-references",
    "metric-never-reset",
    "reference-cycles",
    "trainer-evaluation",
    "tree-grows",
    "worker-leak",
)
"""Pages like whose programs other tests run too: only `make zoo` runs them here."""
EXECUTED = [
    pytest.param(page, marks=[pytest.mark.corpus] * (page.path.stem in ELSEWHERE))
    for page in EVERY
    if page.is_executed
]


def kind_of(item: Culprit | Finding) -> str:
    """Return what the page calls it: the rule that `leakscope check` would give."""
    if isinstance(item, Finding):
        return item.kind
    if item.graph_nodes:
        return "kept-graph"
    return "growing-within-phase" if item.growth == "within" else "growing-container"


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.path.stem)
def test_the_leaking_snippet_is_reported_as_its_page_shows(
    page: Page, tmp_path: Path, recorder: SnippetRecorder
) -> None:
    report = report_of(recorder, tmp_path, page, page.leaks)
    printed = excerpt(report)
    assert reported(report), printed
    assert kind_of(reported(report)[0]) in page.kinds, printed
    assert without_figures(printed) == without_figures(page.shows), printed


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.path.stem)
def test_the_fixed_snippet_is_clean(page: Page, tmp_path: Path, recorder: SnippetRecorder) -> None:
    report = report_of(recorder, tmp_path, page, page.fixed)
    assert report.verdict is RunVerdict.CLEAN, excerpt(report)
    if not page.is_watched:
        assert report.run.ended == "completed", (tmp_path / "output").read_text()
    assert not [finding for finding in report.findings if finding.kind in page.kinds], excerpt(
        report
    )


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.path.stem)
def test_a_page_has_all_its_parts(page: Page) -> None:
    text = page.path.read_text()
    for heading in ("Leaks", "Fixed", "Why", "What looks alike", "What it can't tell"):
        assert f"\n## {heading}\n" in text
    ast.parse(f"{prelude()}\n{page.leaks}")
    ast.parse(f"{prelude()}\n{page.fixed}")
    assert page.leaks
    assert page.leaks != page.fixed


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.path.stem)
def test_a_page_says_where_the_names_of_its_snippets_come_from(page: Page) -> None:
    text = page.path.read_text()
    before = text[text.index("\n## Leaks\n") : text.index(page.leaks)]
    assert "(../diagnoses.md#the-snippets)" in before
    assert "\n## The snippets\n" in OVERVIEW.read_text()


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.path.stem)
def test_a_page_names_kinds_that_have_rules(page: Page) -> None:
    for kind in page.kinds:
        assert rule_of(kind).help != rule_of("no such kind").help, kind


def test_every_kind_has_a_page() -> None:
    reported_for = {kind for page in EVERY for kind in page.kinds}
    kinds = kinds_in_the_sources()
    assert "allocator_slack" in kinds
    assert not kinds - reported_for


def test_the_overview_lists_every_page() -> None:
    text = OVERVIEW.read_text()
    assert not [page.path.stem for page in EVERY if f"(diagnoses/{page.path.name})" not in text]


def kinds_in_the_sources() -> set[str]:
    """Return what the diagnoses hand to ``finding(…)`` as a kind."""
    found: set[str] = set()
    for module in (PACKAGE / "analysis").rglob("*.py"):
        for call in ast.walk(ast.parse(module.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("finding"):
                found |= {word for argument in call.args[:2] for word in words_of(argument)}
    return found


def words_of(argument: ast.expr) -> set[str]:
    nodes = ast.walk(argument) if isinstance(argument, ast.Constant | ast.IfExp) else ()
    texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return {
        text for text in texts if isinstance(text, str) and re.fullmatch(r"[a-z]+(_[a-z]+)*", text)
    }
