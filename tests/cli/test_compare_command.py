"""`leakscope compare`: two runs or reports side by side, and when to fail."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from cli_runs import MIB, record_run, report_with
from click.testing import CliRunner, Result

from leakscope.cli import leakscope
from leakscope.cli.report import read_report
from leakscope.cli.runs import existing_page, to_changes
from leakscope.model.comparison import ChangeKind
from leakscope.model.errors import NewerSchemaError, NoRunError
from leakscope.model.report import Severity
from leakscope.report import render_json


def compare(*words: object) -> Result:
    arguments = ["compare", *map(str, words)]
    return CliRunner().invoke(leakscope, arguments, standalone_mode=False)


def written(path: Path, rate: float | None, *, severity: Severity = Severity.CRITICAL) -> Path:
    path.write_text(render_json(report_with(rate, severity=severity)))
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return written(tmp_path / "before.json", 4.0 * MIB)


def test_run_directories_are_analysed_again(tmp_path: Path) -> None:
    leaking = record_run(tmp_path / "before")
    fixed = record_run(tmp_path / "after", grows=0)
    output = json.loads(compare(leaking, fixed, "--format", "json").stdout)
    assert [culprit["change"] for culprit in output["culprits"]] == ["fixed"]
    assert not list(tmp_path.glob("*/report.*"))


@pytest.mark.parametrize(
    ("rate", "fail_on", "code", "text"),
    [
        (None, "new,worse", 0, ""),
        (None, "any", 0, ""),
        (None, "fixed", 2, "fixed"),
        (4.0 * MIB, "new,worse", 0, ""),
        (4.0 * MIB, "unchanged", 2, "unchanged"),
        (9.0 * MIB, "new,worse", 2, "worse"),
        (9.0 * MIB, "", 0, ""),
        (1.0 * MIB, "any", 2, "reduced"),
    ],
)
def test_exit_code_says_whether_a_change_was_found(
    rate: float | None, fail_on: str, code: int, text: str, before: Path, tmp_path: Path
) -> None:
    after = written(tmp_path / "after.json", rate)
    result = compare(before, after, "--fail-on", fail_on)
    assert result.exception is None
    assert result.return_value == code
    assert ("--fail-on is met" in result.stderr) == bool(code)
    assert text in result.stderr


def test_new_culprit_fails_but_a_new_note_does_not(before: Path, tmp_path: Path) -> None:
    clean = written(tmp_path / "clean.json", None)
    note = written(tmp_path / "note.json", 100.0, severity=Severity.NOTE)
    assert compare(clean, before, "--fail-on", "new").return_value == 2
    assert compare(clean, note, "--fail-on", "any").return_value == 0


@pytest.mark.parametrize(
    ("name", "begins"), [("c.html", "<!"), ("c.json", "{"), ("c.txt", ""), ("c.md", "### ")]
)
def test_format_follows_the_suffix_of_the_file(
    name: str, begins: str, before: Path, tmp_path: Path
) -> None:
    result = compare(before, before, "--out", tmp_path / name)
    assert result.exception is None
    assert str(tmp_path / name) in result.stdout
    assert result.stderr == ""
    assert (tmp_path / name).read_text().lstrip().startswith(begins)


def test_comparison_is_printed_where_no_file_is_named(before: Path) -> None:
    assert "history" in compare(before, before).stdout


def test_markdown_for_a_pull_request_is_printed(before: Path, tmp_path: Path) -> None:
    after = written(tmp_path / "after.json", None)
    result = compare(before, after, "--format", "markdown")
    assert result.stdout.startswith("### ✓ Fixed: ")
    assert "| fixed | `" in result.stdout


def test_file_that_is_no_report_is_one_sentence(before: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    for text in ('{"a": 1}', "{", "", '{"schema_version": 1}'):
        other.write_text(text)
        fault = compare(before, other).exception
        assert isinstance(fault, NoRunError)
        assert "other.json" in str(fault)
    assert isinstance(compare(before, tmp_path / "nowhere").exception, NoRunError)


def test_report_of_a_newer_version_is_refused(before: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps({**json.loads(before.read_text()), "schema_version": 99}))
    assert isinstance(compare(before, newer).exception, NewerSchemaError)


def test_report_json_inside_a_run_stands_for_itself(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run")
    CliRunner().invoke(leakscope, ["report", str(run)], standalone_mode=False)
    result = compare(run / "report.json", run, "--format", "json")
    assert {c["change"] for c in json.loads(result.stdout)["culprits"]} <= {"unchanged"}


def test_changes_are_read_from_a_list() -> None:
    assert to_changes(" new, WORSE ,") == {ChangeKind.NEW, ChangeKind.WORSE}
    assert to_changes("any") == frozenset(ChangeKind) - {ChangeKind.FIXED}
    assert to_changes("") == frozenset()
    with pytest.raises(click.BadParameter):
        to_changes("newer")


def test_a_file_of_a_run_is_no_report_and_stands_for_its_run(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run")
    (run / "outcome-rank1.json").write_text("{}")
    assert read_report(run / "outcome-rank1.json").run.script == "train.py"
    lone = tmp_path / "outcome-rank1.json"
    lone.write_text("{}")
    with pytest.raises(NoRunError, match="belongs to no run"):
        read_report(lone)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not JSON, or was cut off"),
        ('{"schema_version": 1', "it is not JSON, or was cut off"),
        ('{"schema_version": 1, "x": ' + "[" * 100_000, "it is not JSON, or was cut off"),
        ('{"schema_version": 1, "culprits": [{}]}', "it is JSON, but not as leakscope writes it"),
    ],
)
def test_why_a_report_is_none_is_reported_in_plain_words(
    text: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "kept.json"
    path.write_text(text)
    with pytest.raises(NoRunError) as caught:
        read_report(path)
    assert str(caught.value) == f"{path} is no report of leakscope: {why}."


def test_a_comparison_links_the_reports_that_lie_next_to_it(tmp_path: Path) -> None:
    before, after = (tmp_path / name for name in ("before: one.json", "after.json"))
    for path in (before, after):
        written(path, 4.0 * MIB)
    compare(before, after, "--out", tmp_path / "comparison.html")
    assert "Report<span" not in (tmp_path / "comparison.html").read_text()
    before.with_suffix(".html").write_text("")
    compare(before, after, "--out", tmp_path / "comparison.html")
    page = (tmp_path / "comparison.html").read_text()
    assert page.count("Report<span") == 1
    assert '<a href="before%3A%20one.html">' in page
    (tmp_path / "elsewhere").mkdir()
    compare(before, after, "--out", tmp_path / "elsewhere" / "comparison.html")
    assert "Report<span" not in (tmp_path / "elsewhere" / "comparison.html").read_text()
    assert existing_page(None, before) == ""
