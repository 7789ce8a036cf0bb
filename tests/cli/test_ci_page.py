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
    return snippet("name: memory")


def snippet(first_line: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    (text,) = [text for text in blocks("yaml") if text.splitlines()[0] == first_line]
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
    reported = workflow()
    assert reported[True].keys() == {"pull_request", "push"}, "YAML 1.1 reads the key `on` as true"
    assert reported["permissions"]["security-events"] == "write"
    assert reported["permissions"]["actions"] == "read", (
        "of private repositories the upload reads runs"
    )
    steps = reported["jobs"]["memory"]["steps"]
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
    (reported,) = [step["if"] for step in steps if "sarif_file" in step.get("with", {})]
    words = {
        "!cancelled()": "True",
        "hashFiles('memory.sarif')": "'f00'",
        "github.event_name": repr(event),
        "github.event.pull_request.head.repo.full_name": repr(head),
        "github.repository": "'we/it'",
        "&&": "and",
        "||": "or",
    }
    expression = reported.strip().removeprefix("${{").removesuffix("}}").strip()
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


def test_the_action_is_used_with_inputs_that_it_has() -> None:
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    reported = snippet("name: memory in pull requests")
    assert reported["permissions"]["pull-requests"] == "write"
    (used,) = [
        step for step in reported["jobs"]["memory"]["steps"] if "command" in step.get("with", {})
    ]
    assert used["with"].keys() <= action["inputs"].keys()
    table = PAGE.read_text().partition("| input | |")[2].partition("\n\n")[0]
    assert {name for name in re.findall(r"`([\w-]+)`", table) if name in action["inputs"]} == set(
        action["inputs"]
    )


CURL = """#!{python}
import json, shutil, sys
from pathlib import Path

with Path("calls.jsonl").open("a") as stream:
    stream.write(json.dumps(sys.argv[1:]) + "\\n")
if "--output" in sys.argv and sys.argv[sys.argv.index("--output") + 1] == "base.json":
    if not Path("kept.json").exists():
        sys.exit(22)
    shutil.copy("kept.json", "base.json")
"""


@pytest.mark.slow
def test_the_job_for_gitlab_fails_for_a_leak_and_comments(shell, tmp_path: Path) -> None:
    job = snippet("memory:")["memory"]
    script = "\n".join(line for line in job["script"] if not line.startswith("pip install"))
    curl = tmp_path / "bin" / "curl"
    curl.write_text(CURL.format(python=sys.executable))
    curl.chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN.format(work="history[:] = [bytearray(200_000)]"))
    alone = shell(script)
    assert alone.returncode == 0, alone.stderr
    assert not (tmp_path / "calls.jsonl").exists()
    for path in (*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]):
        assert (tmp_path / path).exists(), path

    (tmp_path / "kept.json").write_bytes((tmp_path / "memory-run" / "report.json").read_bytes())
    (tmp_path / "train.py").write_text(TRAIN.format(work=LEAKS))
    request = "export CI_MERGE_REQUEST_IID=7 CI_API_V4_URL=https://lab/api/v4 CI_PROJECT_ID=3\n"
    request += "export CI_JOB_TOKEN=j CI_MERGE_REQUEST_TARGET_BRANCH_NAME=main COMMENT_TOKEN=c\n"
    checked = shell(request + script)
    assert checked.returncode == 2, checked.stderr
    fetched, noted = map(json.loads, (tmp_path / "calls.jsonl").read_text().splitlines())
    assert fetched[-1].endswith("/jobs/artifacts/main/raw/memory-run/report.json?job=memory")
    assert noted[-1] == "https://lab/api/v4/projects/3/merge_requests/7/notes"
    assert "| new | `history`" in (tmp_path / "comparison.md").read_text()

    (tmp_path / "kept.json").unlink()
    silent = shell(request + script)
    assert silent.returncode == 2
    assert "The merge request has no comment" in silent.stdout


@pytest.mark.slow
def test_the_hook_for_pre_commit_lets_pass_what_does_not_leak(shell, tmp_path: Path) -> None:
    ((hook,),) = [repository["hooks"] for repository in snippet("repos:")["repos"]]
    for work, code in ((LEAKS, 2), ("history[:] = [bytearray(200_000)]", 0)):
        (tmp_path / "train.py").write_text(TRAIN.format(work=work))
        done = shell(hook["entry"])
        assert done.returncode == code, done.stderr


def test_the_suppressions_of_the_page_are_read(tmp_path: Path) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("Python 3.10 reads no TOML")
    from leakscope.configuration.project import read_section, read_suppressions

    (tmp_path / "pyproject.toml").write_text(blocks("toml")[0])
    found, remarks = read_suppressions(read_section(tmp_path))
    assert len(found) == 2
    assert remarks == []
