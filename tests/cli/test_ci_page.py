"""The workflow in the documentation: it is YAML, and its commands do what the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "ci.md"
TRAIN = """
import sys
import leakscope

assert sys.argv[1:] == ["--epochs", "6"]
history = []
with leakscope.profile(quiet=True) as scope:
    for epoch in scope.epochs(range(8)):
        for step in scope.steps(range(20)):
            {work}
"""
LEAKS = "history.append(bytearray(200_000))"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def workflow() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    (text,) = blocks("yaml")
    return yaml.safe_load(text)


def commands() -> dict[str, str]:
    steps = workflow()["jobs"]["memory"]["steps"]
    return {step["name"]: step["run"] for step in steps if "run" in step}


@pytest.fixture
def shell(tmp_path: Path):
    """Return what runs a step as GitHub does, with this leakscope on the path."""
    scripts = tmp_path / "bin"
    scripts.mkdir()
    command = scripts / "leakscope"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m leakscope "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }

    def run(step: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step]
        return subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
        )

    return run


def test_the_workflow_has_what_github_asks_for() -> None:
    told = workflow()
    assert told[True].keys() == {"pull_request", "push"}, "YAML 1.1 reads the key `on` as true"
    assert told["permissions"]["security-events"] == "write"
    assert told["permissions"]["actions"] == "read", "of private repositories the upload reads runs"
    steps = told["jobs"]["memory"]["steps"]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    uploaded = [
        step["with"]["sarif_file"] for step in steps if "sarif_file" in step.get("with", {})
    ]
    assert [f"--also {name}" in commands()["Check"] for name in uploaded] == [True]


@pytest.mark.parametrize(
    ("event", "head", "is_uploaded"),
    [("push", None, True), ("pull_request", "we/it", True), ("pull_request", "fork/it", False)],
)
def test_alerts_are_shown_unless_a_fork_asks_to_pull(
    event: str, head: str | None, is_uploaded: bool
) -> None:
    steps = workflow()["jobs"]["memory"]["steps"]
    (told,) = [step["if"] for step in steps if "sarif_file" in step.get("with", {})]
    words = {
        "!cancelled()": "True",
        "hashFiles('memory.sarif')": "'f00'",
        "github.event_name": repr(event),
        "github.event.pull_request.head.repo.full_name": repr(head),
        "github.repository": "'we/it'",
        "&&": "and",
        "||": "or",
    }
    expression = told.strip().removeprefix("${{").removesuffix("}}").strip()
    for word in sorted(words, key=len, reverse=True):
        expression = expression.replace(word, words[word])
    assert eval(expression, {"__builtins__": {}}) is is_uploaded


def test_what_follows_a_training_that_failed_is_run_all_the_same() -> None:
    steps = workflow()["jobs"]["memory"]["steps"]
    names = [step.get("name", "") for step in steps]
    after = steps[names.index("Train") + 1 :]
    assert [step["name"] for step in after] == ["Check", "Show alerts", "Keep the report"]
    assert all("!cancelled()" in step["if"] for step in after)
    assert after[0]["if"] == "${{ !cancelled() }}"


@pytest.mark.slow
def test_a_training_that_failed_is_judged_by_what_it_left(shell, tmp_path: Path) -> None:
    step = commands()
    program = f'{TRAIN.format(work=LEAKS)}    raise SystemExit("killed")\n'
    (tmp_path / "train.py").write_text(program)
    assert shell(step["Train"]).returncode != 0
    checked = shell(step["Check"])
    assert checked.returncode == 2, checked.stderr
    assert "history" in checked.stdout
    assert json.loads((tmp_path / "memory.sarif").read_text())["runs"][0]["results"]


@pytest.mark.slow
def test_the_commands_fail_for_a_leak_and_pass_without(shell, tmp_path: Path) -> None:
    step = commands()
    (tmp_path / "train.py").write_text(TRAIN.format(work=LEAKS))
    trained = shell(step["Train"])
    assert trained.returncode == 0, trained.stderr
    checked = shell(step["Check"])
    assert checked.returncode == 2, checked.stderr
    line = TRAIN.format(work=LEAKS).splitlines().index(f"            {LEAKS}") + 1
    assert checked.stdout.startswith(
        f"::error file=train.py,line={line},title=leakscope%3A history"
    )
    (result,) = json.loads((tmp_path / "memory.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "train.py"
    assert (tmp_path / "memory.xml").exists()
    assert "history" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "memory-run" / "report.html").exists()

    baseline = [line[2:] for line in blocks("console")[0].splitlines() if "leakscope" in line]
    assert [shell(command).returncode for command in baseline] == [0, 0]
    assert json.loads((tmp_path / "leaks.json").read_text())["culprits"][0]["name"] == "history"

    (tmp_path / "train.py").write_text(TRAIN.format(work="history[:] = [bytearray(200_000)]"))
    assert shell(step["Train"].replace("--out", "--force --out")).returncode == 0
    passed = shell(step["Check"])
    assert (passed.returncode, passed.stdout.strip()) == (0, "")


def test_the_suppressions_of_the_page_are_read(tmp_path: Path) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("Python 3.10 reads no TOML")
    from leakscope.configuration import read_section, read_suppressions

    (tmp_path / "pyproject.toml").write_text(blocks("toml")[0])
    found, remarks = read_suppressions(read_section(tmp_path))
    assert len(found) == 2
    assert remarks == []
