"""`leakscope report`: from the recording alone, files whole or absent, faults in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pytest
from cli_runs import record_run
from click.testing import CliRunner, Result

from leakscope.cli import leakscope, output
from leakscope.report import json_schema

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    return record_run(tmp_path / "run")


def invoke(*words: object) -> Result:
    return CliRunner().invoke(leakscope, [str(word) for word in words], standalone_mode=False)


def in_process_of_its_own(*words: object, **added: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leakscope", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **added},
    )


def test_page_and_json_are_written_into_the_run(run_path: Path) -> None:
    result = invoke("report", run_path)
    assert result.exception is None
    page = (run_path / "report.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    reported = json.loads((run_path / "report.json").read_text())
    jsonschema.validate(reported, json_schema())
    assert reported["verdict"] == "leak"
    assert reported["culprits"][0]["name"].endswith("history")
    assert str(run_path / "report.html") in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(("form", "begins"), [("json", "{"), ("text", ""), ("html", "<!")])
def test_report_is_printed_to_stdout(form: str, begins: str, run_path: Path) -> None:
    result = invoke("report", run_path, "--format", form, "--out", "-")
    assert result.exception is None
    assert result.stdout.lstrip().startswith(begins)
    assert "history" in result.stdout
    assert not (run_path / "report.html").exists()


def test_text_and_json_need_no_file(run_path: Path) -> None:
    assert "history" in invoke("report", run_path, "--format", "text").stdout
    assert json.loads(invoke("report", run_path, "--format", "json").stdout)["schema_version"] == 1


@pytest.mark.parametrize("name", ["page.html", "told.json", "told.txt"])
def test_format_follows_the_suffix_of_the_file(name: str, run_path: Path, tmp_path: Path) -> None:
    assert invoke("report", run_path, "--out", tmp_path / name).exception is None
    text = (tmp_path / name).read_text()
    assert text.lstrip()[:1] == {"html": "<", "json": "{"}.get(name.split(".")[1], text[:1])
    assert sorted(path.name for path in run_path.glob("report.*")) == []


def test_summary_writes_both_files_and_sums_up(run_path: Path) -> None:
    result = invoke("report", run_path, "--summary")
    assert result.exception is None
    assert result.stdout == ""
    assert "history" in result.stderr
    assert str(run_path / "report.html") in result.stderr
    assert (run_path / "report.json").exists()


def test_torch_is_not_needed(run_path: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('no torch here')")
    code = (
        "import sys; from leakscope.cli import leakscope\n"
        f"leakscope(['report', {str(run_path)!r}, '--summary'], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules"
    )
    path = os.pathsep.join([str(tmp_path / "broken"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment)
    assert (run_path / "report.html").exists()


def test_half_written_report_is_never_left(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run_path / "report.html").write_text("the former one")

    def full_disk(self: Path, *_: object, **__: object) -> None:
        self.write_bytes(b"<!doc")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full_disk)
    result = invoke("report", run_path)
    assert "No space left on device" in str(result.exception)
    assert (run_path / "report.html").read_text() == "the former one"
    assert not [path for path in run_path.iterdir() if path.suffix == ".tmp"]


def test_report_of_a_folder_that_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        done = in_process_of_its_own("report", path)
        assert done.returncode == 1
        assert done.stderr.startswith("leakscope: ")
        assert done.stderr.count("\n") == 1


def test_report_that_cannot_be_written_is_one_sentence(run_path: Path) -> None:
    done = in_process_of_its_own("report", run_path, "--out", "/proc/nowhere/page.html")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "can't be written" in done.stderr


def test_fault_of_ours_is_one_sentence_unless_debugging(run_path: Path, tmp_path: Path) -> None:
    (tmp_path / "jinja2.py").write_text("raise RuntimeError('broken templates')")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = in_process_of_its_own("report", run_path, PYTHONPATH=path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "RuntimeError: broken templates" in done.stderr
    assert "LEAKSCOPE_DEBUG=1" in done.stderr
    debugged = in_process_of_its_own("report", run_path, PYTHONPATH=path, LEAKSCOPE_DEBUG="1")
    assert debugged.returncode == 1
    assert "Traceback" in debugged.stderr


def test_reader_that_goes_away_is_no_fault(run_path: Path) -> None:
    command = f'"$0" -m leakscope report "{run_path}" --format json | head -c 10'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == ""


def test_width_of_the_terminal_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "61")
    assert output.terminal_width(80) == 61


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.wants_color(is_terminal=True)
    assert not output.wants_color(is_terminal=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.wants_color(is_terminal=True)


def test_version_and_help_are_reported() -> None:
    assert invoke("--version").stdout.startswith("leakscope ")
    for command in ("run", "report", "compare"):
        reported = invoke(command, "--help").stdout
        assert "Exit codes:" in reported
        assert f"leakscope {command}" in reported


@pytest.mark.parametrize("name", ["page.foo", "page.md", "report.v2"])
def test_a_suffix_of_no_form_is_refused(name: str, run_path: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    result = invoke("report", str(run_path), "--out", str(tmp_path / name))
    assert isinstance(result.exception, click.BadParameter)
    assert ".html" in str(result.exception)
    assert sorted(tmp_path.iterdir()) == before
    named = invoke("report", str(run_path), "--out", str(tmp_path / name), "--format", "text")
    assert named.exception is None
    assert (tmp_path / name).read_text().startswith("✗ Leak")


def help_of(name: str, context: click.Context) -> str:
    command = leakscope.get_command(context, name)
    assert command is not None
    return command.get_help(click.Context(command, parent=context))


def test_defaults_stand_in_the_help_without_a_second_pair_of_brackets() -> None:
    context = click.Context(leakscope)
    names = leakscope.list_commands(context)
    texts = {name: " ".join(help_of(name, context).split()) for name in names}
    assert len(texts) > 10
    assert not [name for name, text in texts.items() if "[default: (" in text]
    reported = texts["run"]
    assert "[default: 2%]" in reported
    assert "[default: auto]" in reported
    assert "`boundaries`" in reported
