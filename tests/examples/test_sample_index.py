"""The index of the sample reports: the page of runs, with what was held side by side."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"


def test_the_index_links_every_sample_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for report in REPORTS.glob("*/*.json"):
        (tmp_path / report.parent.name).mkdir(exist_ok=True)
        shutil.copy(report, tmp_path / report.parent.name)
    monkeypatch.syspath_prepend(ROOT / "examples")
    make_reports = importlib.import_module("make_reports")
    page = make_reports.write_index(tmp_path).read_text()
    links = set(re.findall(r'href="([^"#]+\.html)"', page))
    assert links == {str(path.relative_to(REPORTS)) for path in REPORTS.glob("*/*.html")}
    assert all(example.title in page for example in make_reports.EXAMPLES.values())


def test_the_index_links_how_right_the_verdicts_are_where_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    make_reports = importlib.import_module("make_reports")
    assert "How right" not in make_reports.write_index(tmp_path).read_text()
    (tmp_path / "robustness.html").touch()
    page = make_reports.write_index(tmp_path).read_text()
    assert '<a href="robustness.html">Robustness</a>' in page
    assert "zoo.html" not in page
    assert re.search(r"How right the verdicts are</h2>", page)
    assert {*make_reports.MEASURED} == {path.name for path in REPORTS.glob("[rz]*.html")}


def test_every_example_has_a_sample() -> None:
    programs = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert programs - {"__pycache__"} <= {path.parent.name for path in REPORTS.glob("*/*.json")}


@pytest.mark.parametrize(
    "page", sorted(REPORTS.rglob("*.html")), ids=lambda page: str(page.relative_to(REPORTS))
)
def test_a_sample_report_is_one_small_file(page: Path) -> None:
    assert page.stat().st_size < 2_000_000
    assert not re.search(
        r"""<(?:script|link|img)[^>]*(?:src|href)=["'](?!data:)""", page.read_text()
    )
