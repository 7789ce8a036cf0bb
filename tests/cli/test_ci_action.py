"""The action for GitHub: its steps are run as a runner does, all but what other actions do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
TRAIN = """
import sys
import leakscope

assert sys.argv[1:] == ["--name", "two words"]
history = []
with leakscope.profile(quiet=True) as scope:
    for epoch in scope.epochs(range(8)):
        for step in scope.steps(range(20)):
            {work}
{end}
"""
LEAKS = "history.append(bytearray(200_000))"
RESTS = "history[:] = [bytearray(200_000)]"
EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}", re.S)
GH = """#!{python}
import json, sys
from pathlib import Path

calls = Path({calls!r})
known = Path({known!r})
body = next((word[6:] for word in sys.argv if word.startswith("body=@")), "")
text = Path(body).read_text() if body else ""
with calls.open("a") as stream:
    stream.write(json.dumps([sys.argv[1:], text]) + "\\n")
if not body and known.exists():
    print(known.read_text())
sys.exit(0 if not Path({refuses!r}).exists() else 1)
"""


def action() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "action.yml").read_text())


class Runner:
    """Runs the steps of the action in a project, with the environment that GitHub gives them."""

    def __init__(self, folder: Path, event: str = "pull_request") -> None:
        self.project, self.temp = folder / "project", folder / "temp"
        self.calls, self.known = folder / "calls.jsonl", folder / "known"
        self.refuses, self.output = folder / "refuses", folder / "output"
        scripts = folder / "bin"
        for made in (self.project, self.temp, scripts):
            made.mkdir()
        self._script(scripts / "leakscope", f'#!/bin/sh\nexec {sys.executable} -m leakscope "$@"\n')
        places = {"calls": self.calls, "known": self.known, "refuses": self.refuses}
        words = {name: str(place) for name, place in places.items()}
        self._script(scripts / "gh", GH.format(python=sys.executable, **words))
        self.event = event
        self.outcomes: dict[str, str] = {}
        self.summary = folder / "summary.md"
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")},
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_REPOSITORY": "we/it",
            "GITHUB_RUN_ID": "17",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }

    def _script(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *, head: str = "we/it", **inputs: str) -> dict[str, subprocess.CompletedProcess]:
        """Run the steps whose condition holds, and return how each ended."""
        reported = action()
        given = {name: entry.get("default", "") for name, entry in reported["inputs"].items()}
        given |= {name.replace("_", "-"): text for name, text in inputs.items()}
        values = {
            "github.event_name": self.event,
            "github.event.pull_request.head.repo.full_name": head,
            "github.event.pull_request.number": "5",
            "github.repository": "we/it",
            "github.token": "secret",
            **{f"inputs.{name}": text for name, text in given.items()},
        }
        ended: dict[str, subprocess.CompletedProcess] = {}
        self.outcomes = {}
        failed = False
        for step in reported["runs"]["steps"]:
            values |= {f"steps.{name}.outcome": how for name, how in self.outcomes.items()}
            if "run" not in step or not self._holds(step.get("if"), values, failed=failed):
                continue
            done = self._run(step, values)
            ended[step["name"]] = done
            self.outcomes[step.get("id", step["name"])] = (
                "failure" if done.returncode else "success"
            )
            failed |= done.returncode != 0
        return ended

    def _holds(self, condition: str | None, values: dict[str, str], *, failed: bool) -> bool:
        if condition is None:
            return not failed
        (expression,) = EXPRESSION.fullmatch(condition.strip()).groups()
        if "cancelled()" not in expression and failed:
            return False
        words = {name: repr(text) for name, text in values.items()}
        words |= {"!cancelled()": "True", "&&": " and ", "||": " or ", "\n": " "}
        for word in sorted(words, key=len, reverse=True):
            expression = expression.replace(word, words[word])
        return bool(eval(expression, {"__builtins__": {}}))

    def _run(self, step: dict[str, Any], values: dict[str, str]) -> subprocess.CompletedProcess:
        added = {
            name: EXPRESSION.sub(lambda found: values[found[1]], text)
            for name, text in step.get("env", {}).items()
        }
        assert not EXPRESSION.search(step["run"]), "a shell must not see what an expression becomes"
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(
            words,
            cwd=self.project,
            env=self.environment | added,
            capture_output=True,
            text=True,
            timeout=200,
        )

    def requested(self) -> list[tuple[list[str], str]]:
        """Return what was requested of GitHub, with the bodies that were sent."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    def comments(self) -> list[tuple[list[str], str]]:
        return [(words, body) for words, body in self.requested() if body]


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def program(runner: Runner, work: str, end: str = "") -> None:
    (runner.project / "train.py").write_text(TRAIN.format(work=work, end=end))


COMMAND = "train.py --name 'two words'"


def test_the_action_has_what_github_asks_for() -> None:
    reported = action()
    assert reported["runs"]["using"] == "composite"
    for entry in reported["inputs"].values():
        assert entry["description"]
        assert ("default" in entry) != entry.get("required", False)
    for step in reported["runs"]["steps"]:
        assert ("uses" in step) != ("run" in step)
        assert step["name"]
        assert "uses" in step or step["shell"] == "bash"
        for used in EXPRESSION.findall(str(step)):
            for name in re.findall(r"inputs\.([\w-]+)", used):
                assert name in reported["inputs"]


def test_the_page_is_kept_and_the_base_report_fetched_and_kept_at_one_path() -> None:
    used = {step["name"]: step for step in action()["runs"]["steps"] if "uses" in step}
    kept = used["Keep the report"]["with"]["path"].split()
    assert any(path.endswith("/report.html") for path in kept)
    fetched = used["Fetch the base's report"]["with"]
    saved = used["Keep it for the next comparison"]["with"]
    assert fetched["path"] == saved["path"]
    assert saved["key"].startswith("leakscope-${{ inputs.name }}-${{ github.ref_name }}-")
    assert fetched["restore-keys"] == "leakscope-${{ inputs.name }}-${{ github.base_ref }}-"


@pytest.mark.slow
@pytest.mark.sample
def test_a_leak_fails_and_the_pull_request_says_how_it_compares(
    runner: Runner, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    base = Runner(tmp_path / "base", event="push")
    program(base, RESTS)
    ended = base.run(command=COMMAND)
    assert {name: done.returncode for name, done in ended.items()} == {
        "Install": 0, "Record": 0, "Check": 0, "Compare": 0,
        "Take the report for the next comparison": 0,
    }  # fmt: skip
    assert base.requested() == []
    kept = base.temp / "leakscope-memory-base.json"
    (runner.temp / kept.name).write_bytes(kept.read_bytes())  # as the cache does

    program(runner, LEAKS)
    ended = runner.run(command=COMMAND)
    assert ended["Record"].returncode == 0, ended["Record"].stderr
    assert ended["Check"].returncode == 2
    line = TRAIN.format(work=LEAKS, end="").splitlines().index(f"            {LEAKS}") + 1
    assert f"::error file=train.py,line={line}" in ended["Check"].stdout
    assert ended["Compare"].returncode == 0, ended["Compare"].stderr
    assert ended["Comment"].returncode == 0
    ((words, body),) = runner.comments()
    assert words[:4] == ["api", "--method", "POST", "repos/we/it/issues/5/comments"]
    assert body.startswith("<!-- leakscope memory -->\n### ✗ Worse")
    assert "| new | `history`" in body
    assert "    ✗ Leak · " in body, "the run in few words, as a block of code"
    assert "(https://github.com/we/it/actions/runs/17)" in body
    recorded = runner.temp / "leakscope-memory"
    for name in ("report.html", "report.json", "comparison.html", "check.sarif", "check.xml"):
        assert (recorded / name).exists(), name
    assert f"run={recorded}" in runner.output.read_text()
    assert "history" in runner.summary.read_text()

    runner.known.write_text("4711")
    runner.run(command=COMMAND)
    (words, _), second = runner.comments()[-1], runner.comments()
    assert words[:4] == ["api", "--method", "PATCH", "repos/we/it/issues/comments/4711"]
    assert len(second) == 2


@pytest.mark.slow
def test_a_training_that_fails_is_judged_and_explained_all_the_same(runner: Runner) -> None:
    program(runner, LEAKS, end='raise SystemExit("no more data")')
    ended = runner.run(command=COMMAND)
    assert ended["Record"].returncode == 1
    assert ended["Check"].returncode == 2
    ((_, body),) = runner.comments()
    assert "Nothing to compare with yet" in body
    assert "✗ Leak" in body


@pytest.mark.slow
def test_options_of_the_check_and_who_may_comment(runner: Runner) -> None:
    program(runner, LEAKS)
    ended = runner.run(
        command=COMMAND, check_options="--ignore 'history' --ignore train.history", head="fork/it"
    )
    assert ended["Check"].returncode == 0, ended["Check"].stdout
    assert "Comment" not in ended
    ended = runner.run(command=COMMAND, comment="false")
    assert "Comment" not in ended
    runner.refuses.touch()
    ended = runner.run(command=COMMAND)
    assert ended["Comment"].returncode == 0
    assert "::warning::leakscope could not comment" in ended["Comment"].stdout


@pytest.mark.slow
def test_a_command_that_records_nothing_fails_in_a_sentence(runner: Runner) -> None:
    ended = runner.run(command="missing.py")
    assert ended["Record"].returncode == 2
    assert ended["Check"].returncode == 1
    assert "does not exist" in ended["Check"].stderr
    assert runner.comments() == []
