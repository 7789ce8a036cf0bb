"""`leakscope check`: exit codes, baselines, suppressions, and where it is reported."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import msgspec
import pytest
from cli_runs import MIB, record_run, report_with
from click.testing import CliRunner, Result

from leakscope.cli import leakscope
from leakscope.cli.check import _FORMS, _SUFFIXES, find_repository, localised
from leakscope.cli.output import exit_code_of
from leakscope.model.errors import LeakscopeError, NewerSchemaError, NoRunError
from leakscope.model.report import Severity
from leakscope.report import render_json
from leakscope.report.gates import FORMS

reads_toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 reads no TOML")
SUPPRESS = '[[tool.leakscope.suppress]]\npattern = "train.history"\n'


def check(*words: object) -> Result:
    arguments = ["check", *map(str, words)]
    return CliRunner().invoke(leakscope, arguments, standalone_mode=False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of its own, without a project's configuration above it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.fixture
def leaking(folder: Path) -> Path:
    return written(folder / "report.json", 4.0 * MIB)


def written(path: Path, rate: float | None, *, severity: Severity = Severity.CRITICAL) -> Path:
    path.write_text(render_json(report_with(rate, severity=severity)))
    return path


def test_a_recorded_run_that_leaks_fails_and_a_fixed_one_passes(folder: Path) -> None:
    leaking = check(record_run(folder / "leaking"))
    assert leaking.exception is None
    assert leaking.return_value == 2
    assert "Not allowed" in leaking.stdout
    fixed = check(record_run(folder / "fixed", grows=0), "--strict")
    assert fixed.return_value == 0
    assert not list(folder.glob("*/report.*"))


def test_a_run_too_short_to_judge_fails_unless_that_is_accepted(folder: Path) -> None:
    short = record_run(folder / "short", epochs=2)
    assert check(short).return_value == 2
    assert "inconclusive, which shows nothing: --no-strict" in check(short).stdout
    assert check(short, "--no-strict").return_value == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 2),
        (["--max-growth", "4 MiB/epoch"], 0),
        (["--max-growth", "4 MB/epoch"], 2),
        (["--max-growth", "500 KiB/step"], 0),
        (["--ignore", "train.*"], 0),
        (["--ignore", "__main__.history"], 0),
        (["--ignore", "other.*"], 2),
        (["--ignore", "other.*", "--ignore", "*history"], 0),
    ],
)
def test_exit_code_says_whether_anything_grows_that_is_not_allowed(
    options: list[str], code: int, leaking: Path
) -> None:
    assert check(leaking, *options).return_value == code


def test_a_note_passes(folder: Path) -> None:
    assert check(written(folder / "r.json", 100.0, severity=Severity.NOTE)).return_value == 0


def test_bad_input_is_one_sentence(folder: Path, leaking: Path) -> None:
    assert isinstance(check(folder / "nowhere").exception, NoRunError)
    for text in ("{", "", "[]", '{"schema_version": 1}', "\xff", "[" * 100_000):
        (folder / "broken.json").write_text(text)
        fault = check(leaking, "--baseline", "broken.json").exception
        assert isinstance(fault, LeakscopeError)
        assert "--write-baseline" in str(fault)
        assert re.search("it is not JSON|but not as leakscope writes it", str(fault))
        assert not re.search("Object|Errno|\\$", str(fault)), "a library's words"
    missing = check(leaking, "--baseline", "missing.json").exception
    assert isinstance(missing, LeakscopeError)
    assert "it does not exist" in str(missing)
    assert str(missing).endswith("--write-baseline missing.json writes one.")


@pytest.mark.parametrize("known", [[], ["--baseline", "leaks.json"]])
def test_a_file_that_is_no_baseline_is_neither_advised_nor_written_over(
    folder: Path, leaking: Path, known: list[str]
) -> None:
    source = folder / "train.py"
    source.write_text("history = []\n")
    fault = check(leaking, "--baseline", "train.py").exception
    assert isinstance(fault, LeakscopeError)
    assert str(fault).endswith("--write-baseline FILE writes one into a new FILE.")
    assert check(leaking, "--write-baseline", "leaks.json").return_value == 0
    refused = check(leaking, "--write-baseline", "train.py", *known).exception
    assert isinstance(refused, LeakscopeError)
    assert str(refused) == (
        "train.py is there and no baseline: it is not written over. Name another file, or remove "
        "that one."
    )
    assert source.read_text() == "history = []\n"


@pytest.mark.parametrize("made", ["report", "comparison", "check"])
@pytest.mark.parametrize("rate", [4.0 * MIB, None])
def test_what_else_leakscope_writes_is_neither_a_baseline_nor_written_over(
    made: str, rate: float | None, folder: Path, leaking: Path
) -> None:
    path = written(folder / "own.json", rate)
    words = {"comparison": ["compare", path, path], "check": ["check", path]}.get(made)
    if words:
        arguments = [*map(str, words), "--out", "other.json"]
        CliRunner().invoke(leakscope, arguments, standalone_mode=False)
        path = folder / "other.json"
    before = path.read_text()
    known = check(leaking, "--baseline", path).exception
    assert isinstance(known, LeakscopeError)
    assert "is no baseline: it is a report, a comparison or a check." in str(known)
    refused = check(leaking, "--write-baseline", path).exception
    assert isinstance(refused, LeakscopeError)
    assert "is there and no baseline: it is not written over." in str(refused)
    assert exit_code_of(known) == exit_code_of(refused) == 1
    assert path.read_text() == before


def test_a_baseline_accepts_what_grows_until_it_grows_faster(folder: Path, leaking: Path) -> None:
    result = check(leaking, "--write-baseline", "leaks.json")
    assert (result.return_value, result.exception) == (0, None)
    assert "1 known culprit in leaks.json" in result.stdout
    assert check(leaking, "--baseline", "leaks.json").return_value == 0
    faster = written(folder / "faster.json", 9.0 * MIB)
    assert check(faster, "--baseline", "leaks.json").return_value == 2
    assert check(faster, "--baseline", "leaks.json", "--tolerance", "200%").return_value == 0
    fixed = check(written(folder / "fixed.json", None), "--baseline", "leaks.json")
    assert fixed.return_value == 0
    assert "no longer needed: train.history" in fixed.stdout


def test_a_baseline_written_again_is_the_same_and_keeps_its_reasons(
    folder: Path, leaking: Path
) -> None:
    path = folder / "leaks.json"
    check(leaking, "--write-baseline", path)
    first = json.loads(path.read_text())
    first["culprits"][0]["reason"] = "wanted"
    path.write_text(json.dumps(first))
    slightly = written(folder / "slightly.json", 4.1 * MIB)
    check(slightly, "--write-baseline", path)
    assert json.loads(path.read_text()) == first
    check(written(folder / "fixed.json", None), "--write-baseline", path)
    assert json.loads(path.read_text())["culprits"] == []


def test_a_baseline_of_a_newer_version_is_refused(folder: Path, leaking: Path) -> None:
    (folder / "newer.json").write_text('{"schema_version": 99, "culprits": []}')
    assert isinstance(check(leaking, "--baseline", "newer.json").exception, NewerSchemaError)


@reads_toml
def test_the_project_suppresses_with_a_reason(folder: Path, leaking: Path) -> None:
    (folder / "pyproject.toml").write_text(f'{SUPPRESS}reason = "wanted"\nexpires = 2999-01-01\n')
    result = check(leaking)
    assert result.return_value == 0
    assert "wanted" in result.stdout
    (folder / "pyproject.toml").write_text(f'{SUPPRESS}reason = "wanted"\nexpires = 2020-01-01\n')
    result = check(leaking)
    assert result.return_value == 2
    assert "expired on 2020-01-01" in result.stdout


@reads_toml
def test_the_configuration_is_found_above_the_working_directory(
    folder: Path, leaking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pyproject.toml").write_text(f'{SUPPRESS}reason = "wanted"\n')
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (folder / "a" / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    monkeypatch.chdir(inner)
    assert check(leaking).return_value == 0


@reads_toml
def test_a_suppression_without_a_reason_is_refused(folder: Path, leaking: Path) -> None:
    (folder / "pyproject.toml").write_text(SUPPRESS)
    fault = check(leaking).exception
    assert isinstance(fault, LeakscopeError)
    assert "reason" in str(fault)
    assert "1st" in str(fault)


@reads_toml
@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("[tool.leakscope.check\nstrict = true\n", "is not read"),
        ("[tool.leakscope.chek]\nstrict = true\n", "has no chek; did you mean"),
        ("[tool.leakscope.check]\nstrickt = true\n", "did you mean check.strict?"),
        ('[[tool.leakscope.supress]]\npattern = "*"\n', "did you mean suppress?"),
        (f'{SUPPRESS}reason = "wanted"\nexpire = 2020-01-01\n', "did you mean expires?"),
        ("[tool]\nleakscope = 1\n[tool.leakscope.check]\n", "is not read"),
    ],
)
def test_a_gate_that_can_not_read_what_is_allowed_fails(
    text: str, printed: str, folder: Path, leaking: Path
) -> None:
    clean = written(folder / "clean.json", None)
    (folder / "pyproject.toml").write_text(text)
    for options in ([], ["--write-baseline", "leaks.json"]):
        for run in (clean, leaking):
            fault = check(run, *options).exception
            assert isinstance(fault, LeakscopeError)
            assert printed in str(fault)
            assert exit_code_of(fault) == 1
    assert not (folder / "leaks.json").exists()


def test_a_variable_that_no_check_knows_fails_the_gate(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = written(folder / "clean.json", None)
    monkeypatch.setenv("LEAKSCOPE_BUGDET", "1%")
    assert check(clean).return_value == 0
    monkeypatch.setenv("LEAKSCOPE_CHECK_STRCIT", "1")
    assert "did you mean LEAKSCOPE_CHECK_STRICT?" in str(check(clean).exception)


@reads_toml
def test_a_key_that_has_nothing_to_do_with_a_check_fails_none(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.leakscope]\nbugdet = 1\n")
    passed = check(written(folder / "clean.json", None))
    assert passed.return_value == 0
    assert "did you mean budget?" in " ".join(passed.stdout.split())


def test_all_forms_are_written_in_one_go(
    folder: Path, leaking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = folder / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    also = [word for name in ("a.sarif", "a.xml", "a.json", "a.md") for word in ("--also", name)]
    result = check(leaking, "--format", "github", *also, "--job-summary")
    assert result.return_value == 2
    assert result.stdout.startswith("::error ")
    assert "Not allowed" in result.stderr
    assert json.loads((folder / "a.sarif").read_text())["version"] == "2.1.0"
    assert ET.parse(folder / "a.xml").getroot().tag == "testsuites"
    assert json.loads((folder / "a.json").read_text())["outcome"] == "failed"
    assert summary.read_text() == "before\n" + (folder / "a.md").read_text() + "\n"


def test_a_summary_without_a_job_costs_nothing_else(leaking: Path) -> None:
    result = check(leaking, "--job-summary")
    assert result.return_value == 2
    assert "GITHUB_STEP_SUMMARY is not set" in result.stderr


@pytest.mark.parametrize(
    ("name", "begins"), [("c.sarif", "{"), ("c.xml", "<?xml"), ("c.md", "##"), ("c.txt", "✗")]
)
def test_form_follows_the_suffix_of_the_file(
    name: str, begins: str, leaking: Path, folder: Path
) -> None:
    result = check(leaking, "--out", name)
    assert result.return_value == 2
    assert name in result.stdout
    assert (folder / name).read_text().startswith(begins)


def test_a_command_line_that_makes_no_sense_is_refused(leaking: Path) -> None:
    for option, text in (
        ("--also", "a.pdf"),
        ("--out", "a.pdf"),
        ("--max-growth", "10 bananas"),
        ("--max-growth", "much"),
        *(("--tolerance", text) for text in ("-1", "x", "inf", "nan", "-5%")),
    ):
        fault = check(leaking, option, text).exception
        assert isinstance(fault, click.BadParameter)
        assert exit_code_of(fault) == 2


def test_a_limit_of_the_project_that_is_none_is_a_fault(
    leaking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAKSCOPE_CHECK_MAX_GROWTH", "10 bananas")
    fault = check(leaking).exception
    assert isinstance(fault, LeakscopeError)
    assert str(fault).startswith("check.max-growth in LEAKSCOPE_CHECK_MAX_GROWTH: '10 bananas' is")
    assert exit_code_of(fault) == 1


def test_places_are_relative_to_the_repository(folder: Path) -> None:
    source = folder / "examples" / "detector" / "train.py"
    source.parent.mkdir(parents=True)
    source.write_text("pass\n")
    inner = find_repository(source.parent, str(source.parent))
    assert inner.root == folder.resolve()
    assert inner.place("train.py:12") == "examples/detector/train.py:12"
    assert inner.place("examples/detector/train.py:3") == "examples/detector/train.py:3"
    assert inner.place(f"{source}:4") == "examples/detector/train.py:4"
    elsewhere = find_repository(folder, "/recorded/on/another/machine")
    assert elsewhere.place("examples/detector/train.py:3") == "examples/detector/train.py:3"
    for odd in ("/usr/lib/x.py:1", "../../x.py:2", "gone.py:3", "<string>:1", "a\x00b:1", ""):
        assert elsewhere.place(odd) == odd
    assert elsewhere.file("examples/detector/train.py")
    assert elsewhere.file("gone.py") == elsewhere.file("") == ""


@reads_toml
def test_the_project_chooses_what_the_command_line_does_not(
    folder: Path, leaking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.leakscope.check]\nmax-growth = "4 MiB/epoch"\nbaseline = "leaks.json"\n'
    )
    check(leaking, "--max-growth", "1 B/epoch", "--write-baseline", folder / "leaks.json")
    assert check(leaking).return_value == 0
    (folder / "leaks.json").write_text('{"schema_version": 1, "culprits": []}')
    assert check(leaking).return_value == 0
    monkeypatch.setenv("LEAKSCOPE_CHECK_MAX_GROWTH", "1 MiB/epoch")
    assert check(leaking).return_value == 2
    assert check(leaking, "--max-growth", "5 MiB/epoch").return_value == 0


@reads_toml
def test_a_short_run_passes_where_the_project_accepts_it(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.leakscope.check]\nstrict = false\n")
    short = record_run(folder / "short", epochs=2)
    assert check(short).return_value == 0
    assert check(short, "--strict").return_value == 2


@reads_toml
def test_a_project_within_a_repository_is_reported_by_the_paths_of_the_repository(
    folder: Path,
) -> None:
    project = folder / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "train.py").write_text("pass\n")
    report = report_with(4.0 * MIB)
    fed = msgspec.structs.replace(report.culprits[0], fed_at=["src/train.py:1"])
    moved = localised(
        msgspec.structs.replace(report, culprits=[fed]), find_repository(folder, str(project))
    )
    assert moved.culprits[0].fed_at == ["project/src/train.py:1"]
    path = folder / "r.json"
    path.write_text(render_json(moved))
    for pattern in ("src/*", "project/src/*"):
        (folder / "pyproject.toml").write_text(
            f'[[tool.leakscope.suppress]]\npath = "{pattern}"\nreason = "wanted"\n'
        )
        assert check(path).return_value == 0


def test_a_file_with_a_hostile_name_harms_no_log(folder: Path) -> None:
    report = report_with(4.0 * MIB)
    hostile = "a\x1b[31m\n::error::b##[error].py:1"
    fed = msgspec.structs.replace(report.culprits[0], fed_at=[hostile])
    path = folder / "r.json"
    path.write_text(render_json(msgspec.structs.replace(report, culprits=[fed])))
    for options in ([], ["--format", "github"], ["--out", "x.sarif"]):
        result = check(path, *options)
        output = result.stdout + result.stderr
        assert "\x1b" not in output
        assert "##[" not in result.stderr
        lines = [line for line in output.splitlines() if line.startswith("::")]
        assert len(lines) == (1 if "github" in options else 0)


def test_the_forms_of_the_command_line_are_those_of_the_report() -> None:
    assert _FORMS == FORMS
    assert set(_SUFFIXES.values()) == set(FORMS) - {"github"}
